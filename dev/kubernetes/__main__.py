"""`python -m dev.kubernetes`: see `--help`."""

from __future__ import annotations

import argparse
import signal
import sys

from dev.cluster.spec import ClusterError
from dev.gotools import ToolError
from dev.kubernetes.control_plane import control_plane
from dev.kubernetes.page import PAGE, page
from dev.kubernetes.programs import cached, ensure


def up() -> None:
    """Run a control plane until Ctrl-C or SIGTERM."""
    with control_plane() as kubernetes:
        print(f"export KUBECONFIG={kubernetes.kubeconfig} PATH={kubernetes.programs}:$PATH")
        print("Ready: use the line above in another terminal. Stop with Ctrl-C.", flush=True)
        signal.pause()


def write_table() -> None:
    """Write docs/reference/kubernetes.md."""
    PAGE.write_text(page(), encoding="utf-8")


COMMANDS = {
    "up": (up, "run a control plane until Ctrl-C, with simulated nodes"),
    "build": (lambda: print(ensure()), "build its programs into the cache, if they are not there"),
    "cached": (lambda: print(cached()), "print where the built programs are; exit code 1 if they are not built"),
    "table": (write_table, "write docs/reference/kubernetes.md from the last `make kubernetes`"),
}


def main() -> int:
    """Run one command. Return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m dev.kubernetes", description="A Kubernetes without containers.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="name")
    for name, (_, text) in COMMANDS.items():
        commands.add_parser(name, help=text)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        COMMANDS[parser.parse_args().name][0]()
    except (ToolError, ClusterError) as error:
        print(f"kubernetes: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
