"""Let Pulsar 5.0 split and merge segments under load while Bundlekeel balances: `python -m evidence.segments`.

Scalable topics get a high rate, above the split threshold, and then a low one, below the merge threshold. Other topics,
all on one broker at first, give Bundlekeel something to move. Printed: segments, moves, publish gaps with what happened
during them, and messages to the operator. `--no-splits` turns Pulsar's splits and merges off, for comparison.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bundlekeel.model.names import TopicName, bundle_for_hash, parse_topic
from bundlekeel.model.scalable import Segment, changed_bundles
from bundlekeel.pulsar.formats.scalable import decode_layout
from bundlekeel.records.notification_texts import NotificationTexts
from dev.cluster import Cluster, ClusterSpec, open_cluster
from dev.cluster.jars import ensure_jars
from dev.demo.__main__ import end_in_order
from dev.java import NO_COMPILER, compiler, find_java
from dev.markdown import table
from dev.pulsar_releases import RELEASES
from dev.sidecar import Sidecar, bundlekeel, running
from dev.traffic import Traffic, TrafficSpec
from dev.traffic.admin import ensure_namespace, request

RELEASE = RELEASES["5.0"]
NAMESPACE, BUNDLES, BYTES = "demo/scalable", 32, 512
TOPICS = tuple(f"hot-{number}" for number in range(4))
# Rates in messages per second and topic. Two of the first two segments of a topic get 200 each, and split once.
HIGH, LOW, INITIAL = 400, 40, 2
SETTINGS = {
    "statsUpdateFrequencyInSecs": "3",
    "scalableTopicAutoScaleIntervalSeconds": "5",
    "scalableTopicLoadReportIntervalSeconds": "5",
    "scalableTopicSplitMsgRateInThreshold": "150",
    "scalableTopicSplitVsRebucketMinMsgRateInThreshold": "0",
    "scalableTopicSplitCooldownSeconds": "20",
    "scalableTopicMaxSegments": "4",
    "scalableTopicMergeMsgRateInThreshold": "60",
    "scalableTopicMergeWindowSeconds": "20",
    "scalableTopicMergeCooldownSeconds": "20",
}
# A gap belongs to an event if it overlaps the time from `BEFORE_MS` before the event to `AFTER_MS` after its end.
BEFORE_MS, AFTER_MS = 500, 1_500
MESSAGES = ("finding", "external_move", "effect")


def start_producer(
    cluster: Cluster, directory: Path, phases: Sequence[float], topics: Iterable[str]
) -> subprocess.Popen[bytes]:
    """Compile the V5 producer and start it. Raises RuntimeError without a compiler."""
    javac, path = compiler(), f"{ensure_jars(RELEASE)[0].parent}/*"
    if javac is None:
        raise RuntimeError(NO_COMPILER)
    source = Path(__file__).with_name("ScalableProducer.java")
    subprocess.run([javac, "-nowarn", "-proc:none", "-cp", path, "-d", directory, source], check=True)
    command = [str(find_java(RELEASE.oldest_java)), "-Xmx256m", "-cp", f"{directory}:{path}", "ScalableProducer"]
    arguments = [cluster.service_url, str(BYTES), ",".join(map(str, phases)), *topics]
    # Into a file: the client blocks if it logs more than a pipe holds.
    with (directory / "producer.log").open("w") as log:
        return subprocess.Popen([*command, *arguments], stdout=log, stderr=subprocess.STDOUT)


class Segments:
    """The segments of the scalable topics, from layouts of the brokers: each segment as it was last read."""

    def __init__(self, cluster: Cluster) -> None:
        self._url = f"{cluster.brokers[0].web_url}/admin/v2/scalable/{NAMESPACE}"
        self._bounds = ensure_namespace(cluster.brokers[0].web_url, NAMESPACE, BUNDLES)
        self.seen: dict[tuple[str, int], Segment] = {}
        self.parents: dict[tuple[str, int], int] = {}
        for topic in TOPICS:
            status, answer = request("PUT", f"{self._url}/{topic}?numInitialSegments={INITIAL}", {})
            if status not in (200, 204):
                raise RuntimeError(f"{topic}: {status} {answer[:300]!r}")

    def read(self) -> None:
        """Read all layouts once. A layout that cannot be read now is read the next time."""
        for local in TOPICS:
            # Without a consumer, only this request loads the topic's controller, which splits and merges.
            request("GET", f"{self._url}/{local}/stats")
            status, body = request("GET", f"{self._url}/{local}")
            if status != 200:
                continue
            name = TopicName(domain="topic", namespace=NAMESPACE, local=local)
            for segment in decode_layout(body, name):
                self.seen[local, segment.number] = segment
            for number, raw in json.loads(body)["segments"].items():
                # Pulsar removes the numbers of parents that it has deleted.
                parents = max(self.parents.get((local, int(number)), 0), len(raw.get("parentIds") or ()))
                self.parents[local, int(number)] = parents

    def bundle(self, name: str) -> str:
        """Return the bundle of a segment, by its name."""
        return str(bundle_for_hash(NAMESPACE, self._bounds, parse_topic(name).hash))

    def counts(self, local: str) -> tuple[int, int]:
        """Return the number of splits and of merges of a topic. A split has two children, a merge has two parents."""
        counts = Counter(parents for (topic, _), parents in self.parents.items() if topic == local)
        return counts[1] // 2, counts[2]


def cause_of(gap: Sequence[int], moves: Sequence[tuple[int, int]], changes: Iterable[int]) -> str:
    """Return what happened during a gap: a move of a bundle (`moves`: start and end), a change of segments, or both.

    All times are Unix ms.
    """
    moved = any(start - BEFORE_MS <= gap[1] and gap[0] <= end + AFTER_MS for start, end in moves)
    changed = any(at_ms - BEFORE_MS <= gap[1] and gap[0] <= at_ms + AFTER_MS for at_ms in changes)
    return {(True, True): "both", (True, False): "move", (False, True): "split or merge"}.get((moved, changed), "other")


def topic_row(row: Mapping[str, Any], segments: Segments, moves: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the row of a topic: messages, longest gap and sum of its gaps in seconds, and seconds by cause."""
    local = str(row["topic"]).rpartition("/")[2]
    own = {segments.bundle(segment.name) for (topic, _), segment in segments.seen.items() if topic == local}
    spans = [(move["started_ms"], move["wall_ms"]) for move in moves if move["bundle"] in own]
    changes = [item.changed_ms for (topic, _), item in segments.seen.items() if topic == local and item.changed_ms]
    by_cause: Counter[str] = Counter()
    for gap in row["gaps"]:
        by_cause[cause_of(gap, spans, changes)] += gap[1] - gap[0]
    lengths = [gap[1] - gap[0] for gap in row["gaps"]]
    causes = ", ".join(f"{cause} {ms / 1000:.1f}" for cause, ms in by_cause.most_common())
    numbers = (row["acked"], row["failed"], *segments.counts(local), len(spans))
    return [local, *map(str, numbers), f"{max(lengths, default=0) / 1000:.2f}", f"{sum(lengths) / 1000:.2f}", causes]


def too_early(segments: Segments, moves: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the bundles that moved less than a minute after a split or merge of a segment in them."""
    early: list[str] = []
    for move in moves:
        before = [item for item in segments.seen.values() if item.changed_ms < move["started_ms"]]
        early += changed_bundles(before, [move["bundle"]], move["started_ms"] - 60_000)
    return early


def print_result(sidecar: Sidecar, segments: Segments, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the tables of a run."""
    records, moves = sidecar.records(), sidecar.moves()
    texts = NotificationTexts(cluster="demo", member=lambda: "m", leads=lambda: True)
    notified = [note for record in records for note in texts.of(record)]
    scalable = [move for move in moves if str(move["bundle"]).startswith(NAMESPACE)]
    outcomes = Counter(str(move["outcome"]) for move in moves)
    effects = Counter(str(record["outcome"]) for record in records if record["kind"] == "effect")
    kinds = Counter(str(record["kind"]) for record in records)
    print(f"moves {len(moves)} ({dict(outcomes)}), of bundles with segments {len(scalable)}, judged {dict(effects)}")
    print(f"moves within a minute of a split or merge in their bundle: {too_early(segments, moves) or 'none'}")
    print(f"records {dict(kinds)}")
    print(f"notifications {dict(Counter((note.severity, note.reason) for note in notified))}")
    for record in records:
        if record["kind"] in MESSAGES or (record["kind"] == "move" and record["outcome"] != "done"):
            print(f"  {record['kind']}: {record.get('sentence', '')}")
    for (local, number), segment in sorted(segments.seen.items()):
        parents, state = segments.parents[local, number], "active" if segment.active else "sealed"
        print(f"  {segment.name}: parents {parents}, {state}, changed {segment.changed_ms}")
    names = ("topic", "acked", "failed", "splits", "merges", "moves", "longest gap s", "sum s", "sum by cause, s")
    print(*table(names, [topic_row(row, segments, moves) for row in rows]), sep="\n")


def run(options: argparse.Namespace) -> None:
    """Run once and print the result."""
    settings = SETTINGS | {"scalableTopicAutoScaleEnabled": str(not options.no_splits).lower()}
    spec = ClusterSpec(release=RELEASE, mode=options.mode, broker_settings=settings)
    phases = (HIGH, options.high, LOW, options.low)
    with tempfile.TemporaryDirectory(prefix="bundlekeel-segments-") as name, open_cluster(spec) as cluster:
        directory, web_url = Path(name), cluster.brokers[0].web_url
        traffic = Traffic(TrafficSpec(service_url=cluster.service_url, admin_url=web_url, busy_bundles=16))
        traffic.prepare()
        traffic.place_all_on(cluster.brokers[0].broker_id)
        segments = Segments(cluster)
        with traffic, running(cluster, ["sidecar"], directory, start=False) as (sidecar,):
            answer = bundlekeel("takeover", "-c", str(sidecar.config), "--yes", "--reason", "evidence")
            if answer.returncode != 0:
                raise RuntimeError(f"takeover failed: {answer.stdout}{answer.stderr}")
            producer = start_producer(cluster, directory, phases, [f"topic://{NAMESPACE}/{local}" for local in TOPICS])
            try:
                sidecar.start()
                while producer.poll() is None:
                    segments.read()
                    time.sleep(1.0)
                lines = (directory / "producer.log").read_text(encoding="utf-8").splitlines()
                rows = [json.loads(line) for line in lines if line.startswith("{")]
            finally:
                producer.kill()
                producer.wait()
            print_result(sidecar, segments, rows)
            report = traffic.stop()
            print(f"other topics: longest gap {report.publish_gap_seconds:.2f} s, lost {report.lost}")


def main() -> None:
    """Parse the options and run."""
    parser = argparse.ArgumentParser(prog="python -m evidence.segments", description=__doc__)
    parser.add_argument("--mode", choices=("modular", "extensible"), default="modular", help="load manager")
    parser.add_argument("--no-splits", action="store_true", help="Pulsar splits and merges no segment")
    parser.add_argument("--high", type=float, default=70.0, help="seconds with a high rate (default 70)")
    parser.add_argument("--low", type=float, default=70.0, help="seconds with a low rate (default 70)")
    options = parser.parse_args()
    end_in_order()
    run(options)


if __name__ == "__main__":
    main()
