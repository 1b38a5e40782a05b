"""`bundlekeel decide`: the bare decision, JSON lines in and out, no network (docs/reference/cli.md).

How Bundlekeel's own strategies (`compat: none`) interpret a turn (an input line with brokers' data):

* `now` defaults to the newest `lastUpdate`, so that the same lines give the same decisions on any day;
* a bundle that `bundles` does not contain has the values of its broker's report, as if sampled once;
* an average above 0 that rounds to 0.000 is replaced by the value in the broker's report;
* bundles under `recent` are cooling down; guard budgets and splits are off, so that the bare decision is visible;
* `policies` (see `parse_policies`) restricts the destinations of bundles;
* a broker or bundle with an unreadable record or value is omitted and listed under `excluded`; a missing value is 0.
  (The sidecar omits a broker with unknown load, and imputes its traffic.)

A turn adds no sample; only strategy memory survives it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Protocol

import msgspec
import typer
from msgspec import UNSET

from bundlekeel.cli.exit_codes import BAD_NEWS, USAGE, CliError, guarded
from bundlekeel.compat.decide_compat import CompatDecider, CompatTransferDecider
from bundlekeel.compat.decide_corrected import BUDGETS, CorrectedDecider
from bundlekeel.compat.decide_lines import InputLine, LineFault, ResetChoice, parse_line, parse_reset
from bundlekeel.model.parameters import Parameters
from bundlekeel.settings.files import bounded_lines


class Writable(Protocol):
    """The output stream of `decide`."""

    def write(self, data: bytes, /) -> Any:
        """Write bytes."""

    def flush(self) -> None:
        """Send all written bytes."""


class Decider(Protocol):
    """Decides turns (input lines with brokers' data) with the strategy of the last reset line, and keeps its memory."""

    def answer(self, line: InputLine) -> dict[str, Any]:
        """Return the answer to a turn (input line with brokers' data). Raises LineFault if the line cannot be used."""

    def decode(self) -> Callable[[], object] | None:
        """Decode the reports of the last turn (input line with brokers' data) again.

        Returns the call that decides the decoded turn; None before the first turn.
        """


@dataclass(slots=True)
class DecideRun:
    """State of one run of `decide`. `refused_reset`: number of the last reset line if it was refused, else 0."""

    decider: Decider = field(default_factory=lambda: CorrectedDecider(Parameters(**BUDGETS)))
    refused_reset: int = 0

    def answer(self, number: int, text: bytes) -> dict[str, Any] | None:
        """Return the answer or error for an input line; None for a reset and an empty line."""
        if not text.strip():
            return None
        try:
            return self._answer(number, parse_line(text))
        except LineFault as fault:
            return {"error": {"line": number, "field": fault.field, "reason": str(fault)}}

    def _answer(self, number: int, line: InputLine) -> dict[str, Any] | None:
        if line.reset is not UNSET:
            self.refused_reset = number
            self.decider = make_decider(parse_reset(line.reset))
            self.refused_reset = 0
            return None
        if self.refused_reset:
            raise LineFault(
                f"the reset in line {self.refused_reset} was refused; nothing is decided until the next one"
            )
        return self.decider.answer(line) if line.bench is UNSET else _bench(self.decider, line.bench)


def make_decider(choice: ResetChoice) -> Decider:
    """Return the decider that a reset line selects, with empty memory."""
    params = Parameters(**(choice.parameters | BUDGETS))
    if params.compat == "none":
        return CorrectedDecider(params, choice.seed)
    if params.strategy == "transfer":
        return CompatTransferDecider(params)
    return CompatDecider(params, choice.seed, choice.places)


def _bench(decider: Decider, turns: int) -> dict[str, Any]:
    """Repeat the last decision `turns` times, including the decoding of reports; return the median times in ms."""
    decoding, planning = [], []
    for _ in range(turns):
        start = time.perf_counter()
        decide_again = decider.decode()
        if decide_again is None:
            raise LineFault("there is no turn to repeat yet", "bench")
        decoded = time.perf_counter()
        decide_again()
        planning.append(time.perf_counter() - decoded)
        decoding.append(decoded - start)
    return {
        "bench": turns,
        "decode_ms_median": round(median(decoding) * 1000, 4),
        "plan_ms_median": round(median(planning) * 1000, 4),
    }


def run(lines: Iterable[bytes], out: Writable) -> bool:
    """Answer every input line of `decide`, and return False if there were only errors.

    Each answer is flushed, so that a caller can wait for it before the next input line.
    """
    state, good, bad = DecideRun(), 0, 0
    for number, text in enumerate(lines, start=1):
        answer = state.answer(number, text)
        if answer is not None:
            out.write(msgspec.json.encode(answer) + b"\n")
            out.flush()
            good, bad = good + ("error" not in answer), bad + ("error" in answer)
    return good > 0 or bad == 0


@guarded
def decide(
    file: Annotated[Path | None, typer.Argument(help="File with JSON lines. Default: standard input.")] = None,
) -> None:
    """Decide alone, without network and guard budgets: JSON lines in, JSON lines out.

    `{"reset": {"strategy": "avg", "config": {…}}}` starts with empty memory; `{"brokers": {…}, "bundles": {…}}` is a
    turn; `{"bench": N}` repeats the last turn and times it. A bad line returns `{"error": …}`, and the other lines are
    processed. Exit code 1 if there were only errors.
    """
    try:
        lines = nullcontext(sys.stdin.buffer) if file is None else file.open("rb")
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error.strerror}", USAGE) from None
    with lines as stream:
        good = run(bounded_lines(stream, str(file or "standard input")), sys.stdout.buffer)
    if not good:
        raise typer.Exit(BAD_NEWS)


def register(app: typer.Typer) -> None:
    """Add the command `decide` to the app."""
    app.command()(decide)
