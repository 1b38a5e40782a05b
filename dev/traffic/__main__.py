"""``python -m dev.traffic``: make traffic from the command line and print what clients saw."""

from __future__ import annotations

import argparse
import math
import signal
import sys
import threading

import msgspec

from dev.traffic.admin import AdminError
from dev.traffic.report import TrafficReport
from dev.traffic.spec import TrafficError, TrafficSpec
from dev.traffic.traffic import Traffic


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dev.traffic", description=__doc__)
    parser.add_argument("--service-url", required=True, help="pulsar://host:port[,host:port…]")
    parser.add_argument("--admin-url", required=True, help="http://host:port of any broker")
    parser.add_argument("--namespace", default="demo/traffic", help="tenant/namespace, created when missing")
    parser.add_argument("--bundles", type=int, default=32, help="bundles of a new namespace")
    parser.add_argument("--busy-bundles", type=int, help="bundles that get traffic; default all")
    parser.add_argument("--rate", type=float, default=1500.0, help="messages per second over all topics")
    parser.add_argument("--message-bytes", type=int, default=1024)
    parser.add_argument("--zipf", type=float, default=1.1, help="skew between topics; 0 is none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--duration", type=float, help="seconds; default until Ctrl-C")
    parser.add_argument("--place-on", metavar="BROKER_ID", help="first give every bundle to this broker")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text")
    return parser


def _progress(report: TrafficReport) -> str:
    open_gaps = sum(gap.open for gap in report.gaps)
    return (
        f"{report.seconds:6.0f} s  acked {report.acked}  consumed {report.consumed}  "
        f"dup {report.duplicated}  p99 {report.publish_p99_ms:.1f} ms  "
        f"longest gap {max(report.publish_gap_seconds, report.consume_gap_seconds):.2f} s  "
        f"cut off now {open_gaps}"
    )


def _summary(report: TrafficReport) -> str:
    lines = [
        f"{report.seconds:.1f} s of traffic on {len(report.topics)} topics",
        f"sent {report.sent}, acknowledged {report.acked}, consumed {report.consumed}, lost {report.lost}, "
        f"duplicated {report.duplicated}, redelivered {report.redelivered}, "
        f"failed and retried {report.failed_sends}, skipped {report.skipped}",
        f"publish latency p50 {report.publish_p50_ms:.1f} ms, p99 {report.publish_p99_ms:.1f} ms, "
        f"max {report.publish_max_ms:.1f} ms",
        f"longest without a publish {report.publish_gap_seconds:.2f} s, "
        f"without a message received {report.consume_gap_seconds:.2f} s, {len(report.gaps)} gaps listed",
    ]
    worst = sorted(report.gaps, key=lambda gap: -gap.seconds)[:10]
    lines += [f"  {gap.seconds:6.2f} s {gap.kind:8} {gap.bundle} {gap.topic}" for gap in worst]
    return "\n".join(lines)


def _watch(traffic: Traffic, duration: float | None, halt: threading.Event) -> TrafficReport:
    end = "\r" if sys.stderr.isatty() else "\n"
    left = duration if duration is not None else math.inf
    while left > 0 and not halt.wait(min(1.0, left)):
        report = traffic.report()
        left = (duration if duration is not None else math.inf) - report.seconds
        print(f"{_progress(report)}   ", end=end, file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return traffic.stop()


def main() -> int:
    """Run the command and return the exit code: 0 all well, 1 messages were lost, 2 traffic could not run."""
    args = _parser().parse_args()
    halt = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: halt.set())
    try:
        spec = TrafficSpec(
            service_url=args.service_url,
            admin_url=args.admin_url,
            namespace=args.namespace,
            bundles=args.bundles,
            busy_bundles=args.busy_bundles,
            rate_total_msgs=args.rate,
            message_bytes=args.message_bytes,
            zipf=args.zipf,
            seed=args.seed,
        )
        traffic = Traffic(spec)
        if args.place_on:
            traffic.place_all_on(args.place_on)
        with traffic:
            report = _watch(traffic, args.duration, halt)
    except (TrafficError, AdminError) as error:
        print(f"traffic: {error}", file=sys.stderr)
        return 2
    print(msgspec.json.encode(report).decode() if args.output == "json" else _summary(report))
    return 1 if report.lost else 0


if __name__ == "__main__":
    sys.exit(main())
