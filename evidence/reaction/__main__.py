"""Compare load balancers on real clusters: `python -m evidence.reaction`, see `--help`."""

from __future__ import annotations

import argparse
import sys
import time

from dev.cluster import ClusterError
from dev.pulsar_releases import RELEASES, VARIABLE, find_release
from dev.sidecar import SidecarError
from dev.traffic import AdminError, TrafficError
from evidence.reaction import page
from evidence.reaction.contenders import CONTENDERS, Contender
from evidence.reaction.figures import Spread
from evidence.reaction.run import FAST_WARM_SECONDS, WARM_SECONDS, Options, ReactionError, Result, run

# Attempts per run: a busy machine can spoil one. If all fail, the command fails.
_ATTEMPTS = 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m evidence.reaction",
        description="Puts all load on one of three brokers, each with a quarter of a core, lets one balancer after the "
        "other make it even, and measures seconds, moves and what clients notice, from outside. Raw results are kept "
        "in evidence/reaction/results, so the runs can be collected over several invocations and days; journal and log "
        "of each in .run/reaction. About 4 minutes a run and more.",
    )
    parser.add_argument("--pulsar", choices=tuple(RELEASES), help=f"release of Pulsar (default: ${VARIABLE}, else 4.2)")
    parser.add_argument("--runs", type=int, default=3, help="of each contender (default 3)")
    parser.add_argument("--only", default="", metavar="NAME,...", help="these contenders (see --list)")
    parser.add_argument("--list", action="store_true", help="name the contenders and how many runs are kept, and end")
    parser.add_argument("--resume", action="store_true", help="leave runs that are kept as they are")
    parser.add_argument("--write", action="store_true", help=f"write {page.PAGE.relative_to(page.ROOT)} at the end")
    parser.add_argument("--within", type=float, default=900.0, help="seconds a balancer has (default 900)")
    parser.add_argument(
        "--warm",
        type=float,
        help=f"seconds of traffic before the clock ({WARM_SECONDS:.0f}; with fast statistics {FAST_WARM_SECONDS:.0f})",
    )
    parser.add_argument(
        "--quiet",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="the balancer is on for so long with an even load, and then rates of topics change (default: it starts "
        "when everything is on one broker)",
    )
    return parser


def _select_contenders(only: str) -> list[Contender]:
    contenders = {contender.name: contender for contender in CONTENDERS}
    names = [name.strip() for name in only.split(",") if name.strip()]
    unknown = [name for name in names if name not in contenders]
    if unknown:
        raise ReactionError(f"no contender is called {', '.join(unknown)}; known: {', '.join(contenders)}")
    return [contenders[name] for name in names] if names else list(CONTENDERS)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def _sentence(result: Result) -> str:
    gaps = Spread.of(move.gap_seconds for move in result.moves)
    even = "not even in time" if result.even_seconds is None else f"even after {result.even_seconds:.0f} s"
    return (
        f"{result.contender}, run {result.number}: {even}, max/mean {result.start_ratio:.2f} -> "
        f"{result.end_ratio:.2f}, {len(result.moves)} moves, gaps {gaps.median:.2f} / {gaps.p95:.2f} / "
        f"{gaps.worst:.2f} s, lost {result.lost}"
    )


def _once(contender: Contender, number: int, options: Options) -> bool:
    """Measure one contender (a load balancer); repeat a run that fails or does not count (see `Result.counts`). Return
    whether a run counted within the allowed attempts.
    """
    path = page.path_of(contender, number, options.variant)
    logs = page.LOGS / path.relative_to(page.RAW)
    logs.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(1, _ATTEMPTS + 1):
        _say(f"{contender.name}, run {number}" + (f", attempt {attempt}" if attempt > 1 else ""))
        try:
            result = run(contender, number, options, logs, _say)
        except (ReactionError, ClusterError, SidecarError, TrafficError, AdminError) as error:
            _say(f"failed: {error}")
            continue
        page.save(result, path)
        _say(_sentence(result))
        if result.counts:
            return True
        _say(f"run does not count: it started at max/mean {result.start_ratio:.2f}, {result.rate_before:.0f} msg/s")
    return False


def main() -> int:
    """Measure the selected balancers. Return 0 if every run counts, 2 if a name is unknown."""
    arguments = _parser().parse_args()
    try:
        contenders = _select_contenders(arguments.only)
    except ReactionError as error:
        print(f"reaction: {error}", file=sys.stderr)
        return 2
    options = Options(
        release=RELEASES[arguments.pulsar] if arguments.pulsar else find_release(),
        within_seconds=arguments.within,
        warm_seconds=arguments.warm,
        quiet_seconds=arguments.quiet,
    )
    if arguments.list:
        for contender in contenders:
            print(f"{contender.name:24} {len(page.results_of(contender, options.variant))} runs kept")
        return 0
    passed = True
    # First one run of each contender, then the second of each, so that a slower machine affects all of them.
    for number in range(1, arguments.runs + 1):
        for contender in contenders:
            if arguments.resume and page.load(page.path_of(contender, number, options.variant)) is not None:
                continue
            passed = _once(contender, number, options) and passed
    if arguments.write:
        page.write()
        _say(f"wrote {page.PAGE.relative_to(page.ROOT)}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
