"""Read many random examples of each kind of foreign input, and check the errors and the time of each.

`python -m evidence.fuzz [--examples 100000] [--seed 0] [KIND ...]` prints a table. It fails if reading an example
raised another error than the one for malformed input, or took more than `STEP_SECONDS` of CPU time. A message about an
example contains its number: `--seed NUMBER --examples 1` reads only this one again. The kinds "in use" read all
examples with one sidecar, so repeat these from the start.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from dataclasses import dataclass
from typing import Final

import structlog

from tests.support.foreign_input import Kind, example, read_one
from tests.support.foreign_kinds import KINDS

STEP_SECONDS: Final = 0.05
EXAMPLES: Final = 100_000
_REPEATED: Final = 4
_SHOWN_ERRORS: Final = 5


@dataclass(slots=True)
class Measured:
    """Results of one kind: examples read, unexpected errors, and the slowest example with its number and CPU
    seconds.
    """

    examples: int = 0
    errors: int = 0
    longest: float = 0.0
    number: int = 0
    first_errors: tuple[str, ...] = ()


def measure(kind: Kind, seed: int, examples: int) -> Measured:
    """Read `examples` examples of a kind, from number `seed` on. The first numbers are hand-written hostile
    examples.
    """
    measured = Measured()
    for number in range(seed, seed + examples):
        data = example(kind, number)
        measured.examples += 1
        try:
            seconds = _seconds(kind, data)
        except Exception as error:  # noqa: BLE001 - any other error is what we look for
            measured.errors += 1
            if len(measured.first_errors) < _SHOWN_ERRORS:
                measured.first_errors += (f"{number}: {type(error).__name__}: {str(error)[:200]}: {data[:100]!r}",)
            continue
        if seconds > measured.longest:
            measured.longest, measured.number = seconds, number
    return measured


def _seconds(kind: Kind, data: bytes) -> float:
    """Return the CPU seconds of reading `data`. A slow reading is repeated, because a busy machine empties CPU
    caches.
    """
    least = math.inf
    for _ in range(_REPEATED):
        started = time.process_time()
        read_one(kind, data)
        least = min(least, time.process_time() - started)
        if least <= STEP_SECONDS:
            break
    return least


def main() -> int:
    """Print one row per kind. Return 1 if an error was unexpected or an example took too long, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="of each kind")
    parser.add_argument("--seed", type=int, default=0, help="number of the first random example")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"all of: {', '.join(KINDS)}")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    print("| kind | examples | errors | longest step, CPU ms | CPU s |\n|---|---|---|---|---|")
    missed = 0
    for name in options.kinds or KINDS:
        started = time.process_time()
        measured = measure(KINDS[name], options.seed, options.examples)
        missed |= measured.errors > 0 or measured.longest > STEP_SECONDS
        figures = f"{measured.examples} | {measured.errors} | {1000 * measured.longest:.1f} (number {measured.number})"
        print(f"| {name} | {figures} | {time.process_time() - started:.0f} |", flush=True)
        for error in measured.first_errors:
            print(f"  {error}", file=sys.stderr)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
