"""`bundlekeel decide`: the bare decision, JSON lines in and out, no network (docs/reference/cli.md).

What the corrected strategies (`compat: none`) make of a turn:

* `now` defaults to the newest `lastUpdate`, so that the same lines give the same decisions on any day;
* a bundle that `bundles` does not name is taken at what its broker reports of it now, as if sampled once;
* an average above 0 that rounds to 0.000 is replaced by what the bundle's broker reports now;
* bundles under `recent` are cooling down; guard budgets and splits are off, so that the bare decision shows;
* `policies` (see `parse_policies`) narrows where bundles may go;
* a broker or bundle whose record, or a figure of it, cannot be read is left out and listed under `excluded`; a figure
  that is missing is 0. (The daemon leaves out a broker whose load is not known, and imputes its traffic.)

A turn adds no sample; only strategy memory survives it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Protocol

import msgspec
import typer
from msgspec import UNSET

from bundlekeel.cli.exit_codes import BAD_NEWS, USAGE, CliError, guarded
from bundlekeel.cli.offline.decide_compat import (
    MAX_RECORD_BYTES,
    CompatDecider,
    CompatTransfer,
    CompatTurn,
    TransferTurn,
    compat_turn,
    is_extensible,
)
from bundlekeel.cli.offline.decide_lines import (
    InputLine,
    LineFault,
    parse_capacity,
    parse_line,
    parse_policies,
    parse_reset,
)
from bundlekeel.codec.records import decode_bundle_data
from bundlekeel.codec.report import decode_report, unreadable_figure
from bundlekeel.core.compat import CompatPicture
from bundlekeel.core.compat.transfer import TransferPicture
from bundlekeel.core.guard.state import GuardState, RecentMove
from bundlekeel.core.model.averages import Averages
from bundlekeel.core.model.errors import CodecError
from bundlekeel.core.model.extensible import is_rest
from bundlekeel.core.model.load import BrokerReport, BundleAverages, CapacityOverride, ExcludedBroker
from bundlekeel.core.model.parameters import Parameters
from bundlekeel.core.model.plan import Plan
from bundlekeel.core.model.policies import Policies
from bundlekeel.core.model.snapshot import Snapshot, build_snapshot
from bundlekeel.core.planning.engine import PlanInput
from bundlekeel.core.planning.engine import plan as make_plan
from bundlekeel.core.planning.memory import CompatMemory, StrategyMemory
from bundlekeel.settings.files import bounded_lines

UNLIMITED = 2**31

# The bare decision: no budgets, and no splits, which would not be carried out.
_BUDGETS: dict[str, Any] = {
    **dict.fromkeys(
        ("max_moves_per_cycle", "max_moves_per_source", "max_moves_per_target", "max_moves_per_namespace"), UNLIMITED
    ),
    "split_enabled": False,
}


class Writable(Protocol):
    """Where lines go."""

    def write(self, data: bytes, /) -> Any:
        """Write bytes."""

    def flush(self) -> None:
        """Hand them on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The input of a turn, kept for `bench`: the text of the reports, and averages that are in memory already."""

    brokers: dict[str, msgspec.Raw]
    averages: Averages
    now: int | None
    capacity: tuple[CapacityOverride, ...]
    guard: GuardState
    policies: Policies


@dataclass(slots=True)
class Decider:
    """One run: parameters and seed of the last reset, strategy memory, and the last turn."""

    params: Parameters = field(default_factory=lambda: Parameters(**_BUDGETS))
    seed: int = 0
    memory: StrategyMemory = field(default_factory=StrategyMemory)
    turn: Turn | CompatTurn | TransferTurn | None = None
    compat: CompatDecider | None = None
    transfer: CompatTransfer | None = None
    refused_reset: int = 0

    def answer(self, number: int, text: bytes) -> dict[str, Any] | None:
        """What one line gives: an answer, an error, or nothing (a reset, a blank line)."""
        if not text.strip():
            return None
        try:
            return self._answer(number, parse_line(text))
        except LineFault as fault:
            return {"error": {"line": number, "field": fault.field, "reason": str(fault)}}

    def _answer(self, number: int, line: InputLine) -> dict[str, Any] | None:
        if line.reset is not UNSET:
            self._reset(number, line.reset)
            return None
        if self.refused_reset:
            raise LineFault(
                f"the reset in line {self.refused_reset} was refused; nothing is decided until the next one"
            )
        if line.bench is not UNSET:
            return self._bench(line.bench)
        assert line.brokers is not UNSET
        return self._turn(line, line.brokers)

    def _reset(self, number: int, raw: msgspec.Raw) -> None:
        self.refused_reset = number
        chosen = parse_reset(raw)
        self.params = replace(Parameters(), **(chosen.parameters | _BUDGETS))
        self.seed, self.memory, self.turn = chosen.seed, StrategyMemory(), None
        self.compat = self.transfer = None
        if self.params.compat != "none" and self.params.strategy == "transfer":
            self.transfer = CompatTransfer(self.params)
        elif self.params.compat != "none":
            self.compat = CompatDecider(self.params, chosen.seed, chosen.places, CompatMemory())
        self.refused_reset = 0

    def _turn(self, line: InputLine, brokers: dict[str, msgspec.Raw]) -> dict[str, Any]:
        if self.transfer is not None and brokers and not is_extensible(line):
            raise LineFault("TransferShedder reads the load data of the extensible load manager", "brokers")
        if self.params.strategy == "transfer" and (self.transfer is not None or is_extensible(line)):
            return self._transfer_turn(TransferTurn.of(line))
        if is_extensible(line, own_fields_only=True):
            raise LineFault("only strategy transfer reads the load data of the extensible load manager", "brokers")
        if self.compat is not None:
            self.turn = compat_turn(brokers, line.bundles or {}, line.recent or [])
            return self.compat.answer(self.turn)
        capacity = parse_capacity(line.capacity)
        reports, unread = read_reports(brokers)
        stored, torn = _read_bundles(line.bundles or {})
        now = line.now if line.now is not None else _newest(reports)
        # One ms ahead of now: however short the cool-down, these are recent because the caller says so.
        recent = {name: RecentMove(at_ms=now + 1, source="") for name in line.recent or ()}
        turn = Turn(
            brokers=brokers,
            averages=_averages(stored, reports),
            now=line.now,
            capacity=capacity,
            guard=GuardState(recent=recent),
            policies=parse_policies(line.policies),
        )
        snapshot = _snapshot(turn, reports, unread)
        made = self._plan(turn, snapshot)
        self.turn = turn
        return _shown(made, [*({"broker": item.broker_id, **_why(item)} for item in unread), *torn])

    def _transfer_turn(self, turn: TransferTurn) -> dict[str, Any]:
        self.turn = turn
        if self.transfer is not None:
            return self.transfer.answer(turn)
        snapshot, unread = turn.snapshot()
        answer = _shown(self._plan(turn, snapshot), unread)
        answer["refused"] = [item for item in answer["refused"] if not is_rest(item["bundle"])]
        return answer

    def _plan(self, turn: Turn | TransferTurn, snapshot: Snapshot) -> Plan:
        guard = turn.guard_at(snapshot.wall_ms) if isinstance(turn, TransferTurn) else turn.guard
        given = PlanInput(
            snapshot=snapshot,
            params=self.params,
            memory=self.memory,
            guard=guard,
            policies=turn.policies,
            seed=self.seed,
        )
        result = make_plan(given)
        self.memory = result.memory
        return result.plan

    def _bench(self, turns: int) -> dict[str, Any]:
        """`turns` more turns on the last input, decoded again from the text of the reports each time."""
        if self.turn is None:
            raise LineFault("there is no turn to repeat yet", "bench")
        decoding, planning = [], []
        for _ in range(turns):
            start = time.perf_counter()
            picture = self._decoded(self.turn)
            decoded = time.perf_counter()
            self._planned(self.turn, picture)
            planning.append(time.perf_counter() - decoded)
            decoding.append(decoded - start)
        return {
            "bench": turns,
            "decode_ms_median": round(median(decoding) * 1000, 4),
            "plan_ms_median": round(median(planning) * 1000, 4),
        }

    def _decoded(self, turn: Turn | CompatTurn | TransferTurn) -> Snapshot | CompatPicture | TransferPicture:
        if isinstance(turn, TransferTurn):
            return turn.snapshot()[0] if self.transfer is None else turn.picture()[0]
        return turn.decode() if isinstance(turn, CompatTurn) else _snapshot(turn, *read_reports(turn.brokers))

    def _planned(
        self, turn: Turn | CompatTurn | TransferTurn, picture: Snapshot | CompatPicture | TransferPicture
    ) -> None:
        if isinstance(picture, CompatPicture) and self.compat is not None:
            self.compat.decide(picture)
        elif isinstance(picture, TransferPicture) and self.transfer is not None:
            self.transfer.decide(picture)
        elif isinstance(picture, Snapshot) and not isinstance(turn, CompatTurn):
            self._plan(turn, picture)


def run(lines: Iterable[bytes], out: Writable) -> bool:
    """Answer every line; each answer is flushed, so that a caller may wait for it before the next turn. False when
    there were errors only."""
    decider, good, bad = Decider(), 0, 0
    for number, text in enumerate(lines, start=1):
        answer = decider.answer(number, text)
        if answer is not None:
            out.write(msgspec.json.encode(answer) + b"\n")
            out.flush()
            good, bad = good + ("error" not in answer), bad + ("error" in answer)
    return good > 0 or bad == 0


def read_reports(brokers: dict[str, msgspec.Raw]) -> tuple[list[BrokerReport], list[ExcludedBroker]]:
    """The brokers' reports, and those that cannot be read."""
    reports: list[BrokerReport] = []
    unread: list[ExcludedBroker] = []
    for broker, raw in brokers.items():
        try:
            report = decode_report(broker, raw, max_bytes=MAX_RECORD_BYTES)
            if fault := unreadable_figure(report):
                # Pulsar's mapper refuses such a record. As 0 it would attract bundles.
                raise CodecError(f"{fault[1]} cannot be read", code=fault[0])
            reports.append(report)
        except CodecError as error:
            unread.append(ExcludedBroker(broker_id=broker, code=str(error.code), detail=str(error)))
    return reports, unread


def _read_bundles(bundles: dict[str, msgspec.Raw]) -> tuple[list[BundleAverages], list[dict[str, str]]]:
    stored: list[BundleAverages] = []
    torn: list[dict[str, str]] = []
    for name, raw in bundles.items():
        try:
            stored.append(decode_bundle_data(name, raw))
        except CodecError as error:
            torn.append({"bundle": name, "code": str(error.code), "detail": str(error)})
    return stored, torn


def _averages(stored: list[BundleAverages], reports: list[BrokerReport]) -> Averages:
    """Averages as given; a bundle without any counts as sampled once, from the newest report that names it."""
    averages = Averages()
    averages.seed(stored)
    missing: dict[str, BundleAverages] = {}
    for report in sorted(reports, key=lambda item: item.last_update):
        unknown = set(averages.unknown(report.bundle_names))
        if not unknown:
            continue
        rows = zip(report.bundle_names, report.bundle_traffic.tolist(), report.bundle_counts.tolist(), strict=True)
        for name, traffic, counts in rows:
            if name in unknown:
                rates = (traffic[0], traffic[1], traffic[2], traffic[3])
                missing[name] = BundleAverages(
                    bundle=name, short=rates, long=rates, short_samples=1, long_samples=1, topics=counts[0]
                )
    averages.seed(missing.values())
    return averages


def _snapshot(turn: Turn, reports: list[BrokerReport], unread: list[ExcludedBroker]) -> Snapshot:
    return build_snapshot(
        reports=reports,
        averages=turn.averages,
        wall_ms=turn.now if turn.now is not None else _newest(reports),
        excluded=unread,
        capacity=turn.capacity,
    )


def _newest(reports: list[BrokerReport]) -> int:
    return max((report.last_update for report in reports), default=0)


def _why(item: ExcludedBroker) -> dict[str, str]:
    return {"code": item.code, "detail": item.detail}


def _shown(made: Plan, excluded: list[dict[str, str]]) -> dict[str, Any]:
    unload: dict[str, list[str]] = {}
    for move in made.moves:
        unload.setdefault(move.source, []).append(move.bundle)
    answer: dict[str, Any] = {
        "unload": unload,
        "to": {move.bundle: move.target for move in made.moves},
        "verdict": {
            "code": made.verdict.code,
            "sentence": made.verdict.sentence,
            "brokers": [asdict(item) for item in made.brokers],
        },
        "refused": [item._asdict() for item in made.refusals],
        "plan_hash": made.hash,
    }
    if excluded:
        answer["excluded"] = excluded
    return answer


@guarded
def decide(
    file: Annotated[Path | None, typer.Argument(help="JSON lines; standard input when absent.")] = None,
) -> None:
    """Decide alone, without network and guard budgets: JSON lines in, JSON lines out.

    `{"reset": {"strategy": "avg", "config": {…}}}` starts afresh; `{"brokers": {…}, "bundles": {…}}` is a turn;
    `{"bench": N}` repeats the last turn and times it. A bad line gives `{"error": …}`, and the rest goes on.
    Exit code 1 when there were errors only.
    """
    try:
        lines = nullcontext(sys.stdin.buffer) if file is None else file.open("rb")
    except OSError as error:
        raise CliError(f"{file} cannot be read: {error.strerror}", USAGE) from None
    with lines as given:
        good = run(bounded_lines(given, str(file or "standard input")), sys.stdout.buffer)
    if not good:
        raise typer.Exit(BAD_NEWS)


def register(app: typer.Typer) -> None:
    """Put it into the app."""
    app.command()(decide)
