"""A broker that reports nonsense costs that broker, or a figure of it, but never the cycle; and it heals."""

from __future__ import annotations

import copy
import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from dev.cluster import Cluster
from dev.sidecar import Sidecar, running
from tests.chaos.stage import QUICK, ready, until
from tests.chaos.zk import kazoo, read

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

BROKERS = "/pulsar/loadbalance/brokers"


@pytest.fixture(scope="module")
def observer(modular_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """One sidecar that recommends."""
    store = {**QUICK["store"], "max_report_bytes": 1_048_576}
    changes: dict[str, Any] = {**QUICK, "store": store, "root": f"bad-{uuid.uuid4().hex[:8]}", "mode": "recommend"}
    directory = tmp_path_factory.mktemp("bad")
    with running(modular_cluster, ["A"], directory, **changes) as (sidecar,):
        sidecar.until(lambda: ready(sidecar), "it is ready", within=30)
        until(lambda: good_brokers(sidecar, modular_cluster), "all brokers are usable", within=60)
        yield sidecar


def report_of(cluster: Cluster, fake_broker: str, **changes: Any) -> bytes:
    """A real broker's report as if of a fake one, with some fields replaced."""
    with kazoo(cluster) as client:
        report = json.loads(read(client, f"{BROKERS}/{cluster.brokers[0].broker_id}") or b"")
    report |= {"webServiceUrl": f"http://{fake_broker}", "lastStats": {}, "bundles": []}
    # One report is counted once: this one is new.
    report["lastUpdate"] = int(time.time() * 1000)
    return json.dumps(report | copy.deepcopy(changes)).encode()


PERCENT = {"usage": 10.0, "limit": 100.0}
# What the node holds (bytes, or fields of an otherwise good report); state in the API; the metric that counts it.
CASES: dict[str, tuple[bytes | dict[str, Any], str, str, str]] = {
    "empty": (b"", "EmptyReport", "excluded_reports_total", "EmptyReport"),
    "no JSON": (b"\x00 <xml/>", "NotJson", "excluded_reports_total", "NotJson"),
    "a list": (b"[1, 2]", "WrongType", "excluded_reports_total", "WrongType"),
    "2 MB": (b'{"x": "' + b"x" * 2_000_000 + b'"}', "ReportTooLarge", "excluded_reports_total", "ReportTooLarge"),
    "CPU NaN": ({"cpu": {"usage": "NaN", "limit": 100.0}}, "NotANumber", "excluded_reports_total", "NotANumber"),
    "CPU negative": (
        {"cpu": {"usage": -5, "limit": 100.0}},
        "NegativeValue",
        "excluded_reports_total",
        "NegativeValue",
    ),
    "CPU a word": ({"cpu": "much"}, "WrongType", "excluded_reports_total", "WrongType"),
    "rates NaN": ({"msgRateIn": "NaN", "msgThroughputOut": "Infinity"}, "ok", "imputed_fields_total", "NotANumber"),
    "rates of a wrong type": ({"msgRateIn": [], "numTopics": {}}, "ok", "imputed_fields_total", "WrongType"),
    "negative rates": ({"msgRateIn": -1.0}, "ok", "imputed_fields_total", "NegativeValue"),
    "negative limits": ({"bandwidthIn": {"usage": 3.0, "limit": -1000.0}}, "ok", "", ""),
    "future fields": ({"gpu": PERCENT, "cpu": {**PERCENT, "cores": [1, 2]}, "schemaVersion": 9}, "ok", "", ""),
}


def fake(number: int) -> str:
    """The address of one of the fake brokers; nothing listens there."""
    return f"127.0.9.{number + 1}:1"


def rows_of(sidecar: Sidecar) -> dict[str, dict[str, Any]]:
    """Return the API's row of each fake broker, by the name of its case."""
    rows = {row["broker"]: row for row in sidecar.get("/api/v1/brokers") or []}
    return {name: rows[fake(number)] for number, name in enumerate(CASES) if fake(number) in rows}


def cycle_of(sidecar: Sidecar) -> int:
    """The number of the last cycle."""
    return int(sidecar.state()["cycle"]["id"])


def good_brokers(sidecar: Sidecar, cluster: Cluster) -> bool:
    """Whether all real brokers are seen and usable."""
    usable = {row["broker"] for row in sidecar.get("/api/v1/brokers") or [] if row["state"] == "ok"}
    return {broker.broker_id for broker in cluster.brokers} <= usable


def check_told(observer: Sidecar, counted: dict[tuple[str, str], float]) -> None:
    """State and code of each of them in the API, and a count of its own in the metrics."""
    rows = rows_of(observer)
    assert {name: row["state"] for name, row in rows.items()} == {name: case[1] for name, case in CASES.items()}
    for name, row in rows.items():
        if row["state"] == "ok":
            assert all(row[field] >= 0 for field in ("msg_rate_in", "score_ratio", "throughput_out")), name
            assert all(part["percent"] >= 0 for part in row["resources"].values()), name
    times = Counter(case[2:] for case in CASES.values() if case[2])
    for (metric, code), before in counted.items():
        assert observer.metric(metric, code=code) >= before + times[metric, code], code
    verdict = observer.get("/api/v1/verdicts", limit=1)[-1]["verdict"]
    assert verdict["code"] not in ("InternalError", "StoreUnavailable", "NoLoadData", "Unknown"), verdict


def test_a9_corrupt_records(observer: Sidecar, modular_cluster: Cluster) -> None:
    """Twelve corrupt records at once: each affects only its own broker or one of its values. Cycles continue for the
    others, and removing the records helps.
    """
    assert good_brokers(observer, modular_cluster)
    counted = {case[2:]: observer.metric(case[2], code=case[3]) for case in CASES.values() if case[2]}
    errors = observer.metric("unexpected_errors_total")
    with kazoo(modular_cluster) as client:
        for number, (content, *_) in enumerate(CASES.values()):
            data = content if isinstance(content, bytes) else report_of(modular_cluster, fake(number), **content)
            client.create(f"{BROKERS}/{fake(number)}", data, ephemeral=True)
        try:
            until(lambda: len(rows_of(observer)) == len(CASES), "all of them are seen", within=40)
            cycle = cycle_of(observer)
            until(lambda: cycle_of(observer) >= cycle + 2, "cycles go on", within=40)
            assert good_brokers(observer, modular_cluster)
            check_told(observer, counted)
        finally:
            for number in range(len(CASES)):
                client.delete(f"{BROKERS}/{fake(number)}")
    until(lambda: not rows_of(observer), "they are gone", within=20)
    until(lambda: good_brokers(observer, modular_cluster), "the others are usable", within=30)
    assert ready(observer)
    assert observer.metric("unexpected_errors_total") == errors
