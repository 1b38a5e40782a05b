"""``python -m dev.cluster``: run a local Pulsar cluster, and kill, pause or restart its processes by name."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from dev.cache import cache_dir
from dev.cluster.jars import ensure_jars, lock_jars
from dev.cluster.launcher import ACTIONS, Launcher, State, ask, state_file
from dev.cluster.spec import ClusterError, ClusterSpec
from dev.pulsar_releases import RELEASES, VARIABLE, Release, UnknownReleaseError, find_release

REPOSITORY = Path(__file__).resolve().parents[2]
STOP_SECONDS = 60.0
POLL_SECONDS = 0.1

EPILOG = """examples:
  python -m dev.cluster jars                      fetch the class path once
  python -m dev.cluster up                        3 brokers, until Ctrl-C
  python -m dev.cluster up --detach --cpu-quota 0.25
  python -m dev.cluster --pulsar 5.0 up           Pulsar 5.0 on Java 21
  python -m dev.cluster status -o json
  python -m dev.cluster pause broker-2            then: resume, restart, kill
  python -m dev.cluster down

The jars, the state file and the lock live in $BUNDLEKEEL_CACHE (default ~/.cache/bundlekeel);
one cluster of the command line runs per cache directory. CLUSTER=docker runs it in containers."""

ACTION_HELP = {
    "kill": "SIGKILL a process",
    "pause": "SIGSTOP a process: it keeps its connections and answers nothing",
    "resume": "SIGCONT a paused process",
    "restart": "stop a process if it runs, start it again, wait until it is ready",
}


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the exit code: 0 done, 1 refused or failed, 2 misused."""
    arguments = build_parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except (ClusterError, UnknownReleaseError) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m dev.cluster",
        description="A real Pulsar cluster on this machine: one ZooKeeper, one bookie, N brokers.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--pulsar",
        choices=tuple(RELEASES),
        help=f"release of Pulsar (default: ${VARIABLE}, else 4.2)",
        metavar="RELEASE",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_up(commands.add_parser("up", help="start a cluster; stops cleanly on Ctrl-C or SIGTERM"))
    status = commands.add_parser("status", help="show addresses and processes of the running cluster")
    status.add_argument("-o", "--output", choices=("table", "json"), default="table")
    status.set_defaults(run=run_status)
    commands.add_parser("down", help="stop the running cluster").set_defaults(run=run_down)
    for action in ACTIONS:
        one = commands.add_parser(action, help=ACTION_HELP[action])
        one.add_argument("name", metavar="NAME", help="zookeeper, bookie, broker-1, broker-2 …")
        one.set_defaults(run=run_action, action=action)
    commands.add_parser("jars", help="fetch the class path into the cache").set_defaults(run=run_jars)
    commands.add_parser("lock", help="write a release's jars.lock anew from its pom.xml (needs Maven)").set_defaults(
        run=run_lock
    )
    return parser


def _add_up(up: argparse.ArgumentParser) -> None:
    up.add_argument("--brokers", type=int, default=3, metavar="N", help="0 starts ZooKeeper alone (default 3)")
    up.add_argument("--mode", choices=("modular", "extensible"), default="modular", help="load manager")
    up.add_argument("--stock-stats", action="store_true", help="Pulsar's own statistics pace (60 s) instead of 1 s")
    up.add_argument("--cpu-quota", type=float, metavar="CORES", help="CPU quota of each broker, for example 0.25")
    up.add_argument("--data-dir", type=Path, metavar="DIR", help="empty directory to use and keep")
    up.add_argument("--secure", action="store_true", help="TLS, tokens and authorization; TLS and SASL at ZooKeeper")
    up.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a line of broker.conf; may be repeated",
    )
    up.add_argument("--detach", action="store_true", help="return when ready and leave the cluster running")
    up.set_defaults(run=run_up)


def run_up(arguments: argparse.Namespace) -> int:
    """Start a cluster in this process, or in a launcher process that runs in the background."""
    spec = ClusterSpec(
        release=_release(arguments),
        brokers=arguments.brokers,
        mode=arguments.mode,
        fast_stats=not arguments.stock_stats,
        cpu_quota_cores=arguments.cpu_quota,
        data_dir=arguments.data_dir,
        broker_settings=parse_settings(arguments.set),
        secure=arguments.secure,
    )
    if arguments.detach:
        return detach(arguments)
    Launcher(spec).run(lambda state: print(table(state), "\nReady. Stop with Ctrl-C.", sep="\n", flush=True))
    print("cluster: stopped", flush=True)
    return 0


def _release(arguments: argparse.Namespace) -> Release:
    return RELEASES[arguments.pulsar] if arguments.pulsar else find_release()


def parse_settings(lines: list[str]) -> dict[str, str]:
    """Return ``KEY=VALUE`` arguments as a mapping; raise ClusterError for one without "="."""
    for line in lines:
        if "=" not in line:
            raise ClusterError(f"--set wants KEY=VALUE, not {line!r}")
    return {key: value for key, _, value in (line.partition("=") for line in lines)}


def detach(arguments: argparse.Namespace) -> int:
    """Start a launcher, a process that runs the cluster in the background. Return the exit code once the cluster is
    ready.
    """
    command = [sys.executable, "-m", "dev.cluster", *foreground_flags(arguments)]
    cache_dir().mkdir(parents=True, exist_ok=True)
    log = cache_dir() / "launcher.log"
    with log.open("wb") as output:
        launcher = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    while launcher.poll() is None:
        if launcher_pid() == launcher.pid:
            print(table(ask("status")))
            print(f"\nReady, detached (launcher log {log}). Stop with: python -m dev.cluster down")
            return 0
        time.sleep(POLL_SECONDS)
    print(log.read_text(errors="replace"), end="", file=sys.stderr)
    return 1


def foreground_flags(arguments: argparse.Namespace) -> list[str]:
    """Return the arguments with which the launcher process runs ``up`` in its foreground."""
    flags = ["--pulsar", _release(arguments).line, "up", "--brokers", str(arguments.brokers), "--mode", arguments.mode]
    if arguments.stock_stats:
        flags.append("--stock-stats")
    if arguments.cpu_quota is not None:
        flags += ["--cpu-quota", str(arguments.cpu_quota)]
    if arguments.data_dir is not None:
        flags += ["--data-dir", str(arguments.data_dir.resolve())]
    if arguments.secure:
        flags.append("--secure")
    for line in arguments.set:
        flags += ["--set", line]
    return flags


def launcher_pid() -> int | None:
    """Return the pid of the process that runs the cluster, from the state file; None if there is no file."""
    try:
        return int(json.loads(state_file().read_text())["launcher_pid"])
    except (OSError, ValueError, KeyError):
        return None


def run_status(arguments: argparse.Namespace) -> int:
    """Print the state of the running cluster."""
    state = ask("status")
    print(json.dumps(state, indent=2) if arguments.output == "json" else table(state))
    return 0


def run_down(_arguments: argparse.Namespace) -> int:
    """Stop the running cluster and wait until the process that runs it has ended."""
    pid = ask("down")["launcher_pid"]
    deadline = time.monotonic() + STOP_SECONDS
    while launcher_pid() == pid:
        if time.monotonic() > deadline:
            raise ClusterError(f"the launcher (pid {pid}) is still stopping after {STOP_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)
    print("cluster: stopped")
    return 0


def run_action(arguments: argparse.Namespace) -> int:
    """Kill, pause, resume or restart one process of the cluster."""
    process = ask(arguments.action, arguments.name)["processes"][arguments.name]
    print(f"{arguments.name}: {process['condition']}" + (f" (pid {process['pid']})" if process["pid"] else ""))
    return 0


def run_jars(arguments: argparse.Namespace) -> int:
    """Download Pulsar's jars, unless the cache has them already."""
    jars = ensure_jars(_release(arguments))
    print(f"{len(jars)} jars in {jars[0].parent}")
    return 0


def run_lock(arguments: argparse.Namespace) -> int:
    """Write a release's jars.lock again, with the jars that Maven resolves for its pom.xml."""
    print(f"{lock_jars(_release(arguments))} jars")
    return 0


def table(state: State) -> str:
    """Return the state of the cluster as a readable table."""
    urls = {broker["name"]: f"{broker['web_url']}  {broker['service_url']}" for broker in state["brokers"]}
    urls["zookeeper"] = state["zk_hosts"]
    lines = [f"{'NAME':<10} {'PID':>7}  {'STATE':<8} ADDRESS"]
    for name, process in state["processes"].items():
        lines.append(f"{name:<10} {process['pid'] or '-':>7}  {process['condition']:<8} {urls.get(name, '')}".rstrip())
    lines.append("")
    for key in (
        "pulsar",
        "mode",
        "metadata_url",
        "configuration_url",
        "service_url",
        "cpu_isolation",
        "zk_audit_log",
        "data_dir",
        "secure_dir",
    ):
        if state.get(key):
            lines.append(f"{key:<18} {state[key]}")
    return "\n".join(lines)
