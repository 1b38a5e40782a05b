"""Run the demo: `python -m dev.demo`, see `--help`."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from rich.console import Console

from dev.cluster import ClusterError
from dev.demo.run import Demo, DemoError, Options
from dev.sidecar import SidecarError
from dev.traffic import TrafficError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def end_in_order() -> None:
    """Make the first Ctrl-C or SIGTERM stop the sidecars, the traffic and the cluster in order; ignore later ones.

    The handler is set explicitly, because a process that a script starts with `&` ignores SIGINT.
    """

    def unwind(_signal: int, _frame: FrameType | None) -> None:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in _SIGNALS:
        signal.signal(number, unwind)


def main() -> int:
    """Run the demo and print failures. Return 0 only if all conditions were met."""
    parser = argparse.ArgumentParser(
        prog="python -m dev.demo",
        description="Balances a real Pulsar cluster on this machine: all load starts on one of three brokers, three "
        "sidecars take over, the leading one is killed after its first moves. Exit 0 only if the load "
        "became even, every move reached its target and no message was lost.",
    )
    parser.add_argument(
        "--mode", choices=["modular", "extensible"], default="modular", help="load manager of the brokers"
    )
    parser.add_argument(
        "--secure", action="store_true", help="TLS, tokens and authorization at the brokers, TLS and SASL at ZooKeeper"
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave everything running until Ctrl-C or SIGTERM, and print the URLs"
    )
    parser.add_argument(
        "--stock-stats",
        action="store_true",
        help="brokers update their statistics once a minute, Pulsar's default (takes several minutes)",
    )
    parser.add_argument("--seed", type=int, default=1, help="of the traffic's skew (default 1)")
    parser.add_argument("--within", type=float, default=420.0, help="seconds until the load must be even (default 420)")
    parser.add_argument("--idle", type=float, default=20.0, help="seconds to measure idle sidecars (default 20)")
    parser.add_argument("--report", type=Path, help="also write what happened to this JSON file")
    options = Options(**vars(parser.parse_args()))
    end_in_order()
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False)
    with tempfile.TemporaryDirectory(prefix="bundlekeel-demo-") as directory:
        try:
            return 0 if Demo(options, console, Path(directory)).run() else 1
        except (DemoError, ClusterError, SidecarError, TrafficError) as error:
            console.print(f"[red]the demo failed:[/red] {error}")
            return 1
        except KeyboardInterrupt:
            return 130


if __name__ == "__main__":
    sys.exit(main())
