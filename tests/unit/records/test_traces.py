"""Traces: the tree of each cycle, off unless asked for, and what really arrives at a collector over OTLP/HTTP.

Tests of the exporter run where the extra `otel` is installed (requirements/dev.lock has it).
"""

from __future__ import annotations

import gzip
import importlib.util
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from bundlekeel.leader.execution.intents import MoveOutcome
from bundlekeel.leader.execution.split_intents import SplitOutcome
from bundlekeel.model.errors import ConfigError
from bundlekeel.ports.traces import Span
from bundlekeel.records.journal import FileJournal
from bundlekeel.records.metrics import PrometheusTelemetry
from bundlekeel.records.notifications import ObservedJournal
from bundlekeel.records.traces import Traces
from bundlekeel.settings.load import LoadedSettings, load_settings
from bundlekeel.wiring.traces import traces_of
from tests.support.http_server import serving
from tests.support.memory_source import RealClock

needs_otel = pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry.sdk") is None, reason="the extra otel is not installed"
)
NOW = 1_700_000_100_000


class Clock(RealClock):
    """Stands still."""

    def wall_ms(self) -> int:
        """Always the same."""
        return NOW


class Kept:
    """A sink that keeps the trees."""

    def __init__(self) -> None:
        self.roots: list[Span] = []
        self.closed = False

    def add(self, root: Span) -> None:
        """Keep it."""
        self.roots.append(root)

    def close(self) -> None:
        """Note it."""
        self.closed = True


def moved(bundle: str, cycle: str = "7", **changes: Any) -> dict[str, Any]:
    """The record of a move as the leader writes it."""
    options = {"outcome": "done", "started_wall_ms": NOW - 3000, "landed_wall_ms": NOW - 1000, **changes}
    outcome = MoveOutcome(
        bundle=bundle,
        source="b1:8080",
        destination="b2:8080",
        landed_on="b2:8080",
        seconds=2.0,
        cycle_id=cycle,
        epoch=3,
        **options,
    )
    return outcome.record()


def cycle(number: int = 7, **changes: Any) -> dict[str, Any]:
    """The record of a cycle that planned for a second and moved for two."""
    base = {"kind": "cycle", "cycle": number, "wall_ms": NOW - 4000, "epoch": 3, "code": "Overloaded"}
    base |= {"sentence": "2 bundles moved.", "acted": True, "obstacle": None, "plan": "ab12", "digest": "cd34"}
    base |= {"planned": 2, "planned_splits": 0, "seconds": {"plan": 1.0, "execute": 2.5, "total": 4.0}}
    return base | changes


def tree(*records: dict[str, Any]) -> list[Span]:
    remaining = Kept()
    traces = Traces(remaining, Clock())
    for record in records:
        traces.observe(record)
    return remaining.roots


# --- the tree ---


def test_a_cycle_is_a_tree_of_its_plan_and_its_moves() -> None:
    """Moves lie below the execution of the very cycle that made them, with the times of the records."""
    (root,) = tree(moved("t/n/a"), moved("t/n/b", outcome="refused", code="AdminRefused", error="409"), cycle())
    assert (root.name, root.start_ms, root.seconds) == ("cycle", NOW - 4000, 4.0)
    assert root.attributes["bundlekeel.code"] == "Overloaded"
    assert root.attributes["bundlekeel.epoch"] == 3
    assert not root.error
    plan, execute = root.children
    assert (plan.name, plan.start_ms, plan.seconds) == ("plan", NOW - 4000, 1.0)
    assert plan.attributes["bundlekeel.plan"] == "ab12"
    assert (execute.name, execute.start_ms, execute.seconds) == ("execute", NOW - 2500, 2.5)
    first, second = execute.children
    assert (first.name, first.start_ms, first.seconds, first.error) == ("move", NOW - 3000, 2.0, "")
    assert first.attributes["bundlekeel.bundle"] == "t/n/a"
    assert second.error == "refused AdminRefused 409"


def test_splits_come_after_moves() -> None:
    """Both phases end the cycle, one after the other."""
    outcome = SplitOutcome(
        bundle="t/n/0x00000000_0x10000000",
        broker="b1:8080",
        rule="hot",
        outcome="done",
        started_wall_ms=NOW - 900,
        seconds=0.5,
        cycle_id="7",
    )
    record = cycle(seconds={"plan": 1.0, "execute": 2.0, "split": 1.0, "total": 4.0})
    (root,) = tree(moved("t/n/a"), outcome.record(), record)
    assert [(child.name, child.start_ms) for child in root.children] == [
        ("plan", NOW - 4000),
        ("execute", NOW - 3000),
        ("split", NOW - 1000),
    ]
    assert [child.name for child in root.children[2].children] == ["split"]


def test_a_cycle_that_could_not_decide_is_an_error() -> None:
    """It has no plan, and its sentence says why."""
    record = cycle(
        plan=None, digest=None, code="StoreUnavailable", sentence="no decision: away", seconds={"total": 0.1}
    )
    (root,) = tree(record)
    assert (root.children, root.error) == ((), "no decision: away")


def test_moves_of_others_are_no_part_of_a_cycle() -> None:
    """A person's move, and one of an earlier cycle, do not show up below this cycle."""
    roots = tree(moved("t/n/a", "20240101-drain"), moved("t/n/b", "6"), cycle(seconds={"plan": 1.0, "total": 1.0}))
    assert [root.name for root in roots] == ["move", "cycle"]
    assert [child.name for child in roots[1].children] == ["plan"]


def test_what_an_earlier_leader_left_has_no_time_and_no_span() -> None:
    """Its beginning is not known here."""
    assert tree(moved("t/n/a", "", started_wall_ms=0)) == []


def test_other_records_are_not_heard() -> None:
    """The journal holds more than work."""
    assert tree({"kind": "request", "what": "pause"}, {}, {"kind": "finding"}) == []


async def test_closing_sends_what_is_left() -> None:
    remaining = Kept()
    await Traces(remaining, Clock()).close()
    assert remaining.closed


# --- settings ---


def loaded(**options: Any) -> LoadedSettings:
    """Settings with this section."""
    return load_settings(None, {"cluster": "east", "traces": options}, environ={})


def test_nothing_is_traced_by_default() -> None:
    """No setting, no library, no thread."""
    assert traces_of(loaded(), PrometheusTelemetry(), Clock(), "keel-0") is None


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://collector/v1/traces", ""])
def test_what_is_no_address_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigError, match=r"traces\.otlp_endpoint"):
        loaded(otlp_endpoint=endpoint)


def test_without_the_extra_the_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http.trace_exporter"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, "bundlekeel.records.otlp", raising=False)
    with pytest.raises(ConfigError, match=r"pip install '\.\[otel\]'"):
        traces_of(loaded(otlp_endpoint="http://127.0.0.1:4318/v1/traces"), PrometheusTelemetry(), Clock(), "keel-0")


# --- over the wire ---


class Collector:
    """Receiver of posts: path and body, unpacked."""

    def __init__(self) -> None:
        self.port = 0
        self.status = 200
        self.posted: list[tuple[str, bytes]] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/traces"


@pytest.fixture
def collector() -> Iterator[Collector]:
    result = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            packed = self.headers.get("Content-Encoding") == "gzip"
            result.posted.append((self.path, gzip.decompress(body) if packed else body))
            self.send_response(result.status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with serving(Handler) as result.port:
        yield result


async def sent(collector: Collector, telemetry: PrometheusTelemetry, journal: Path) -> None:
    """One cycle with one move, written to a journal that traces observe, then the end."""
    traces = traces_of(loaded(otlp_endpoint=collector.endpoint), telemetry, Clock(), "keel-0")
    assert traces is not None
    observed_journal = ObservedJournal(FileJournal(journal, telemetry=telemetry), traces.observe)
    for record in (moved("t/n/a"), cycle()):
        observed_journal.append(record)
    observed_journal.close()
    await traces.close()


def render_metrics(telemetry: PrometheusTelemetry) -> str:
    """The metrics as Prometheus reads them."""
    return telemetry.render("")[0].decode()


@needs_otel
async def test_a_cycle_arrives_at_the_collector(collector: Collector, tmp_path: Path) -> None:
    """Names, times to the millisecond, parents, attributes and who sent it, as protobuf over real HTTP."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: PLC0415

    telemetry = PrometheusTelemetry()
    await sent(collector, telemetry, tmp_path / "journal.jsonl")
    ((path, body),) = collector.posted
    assert path == "/v1/traces"
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    who = {item.key: item.value.string_value for item in resource.resource.attributes}
    assert (who["service.name"], who["service.namespace"], who["service.instance.id"]) == (
        "bundlekeel",
        "east",
        "keel-0",
    )
    spans = {span.name: span for scope in resource.scope_spans for span in scope.spans}
    assert sorted(spans) == ["bundlekeel.cycle", "bundlekeel.execute", "bundlekeel.move", "bundlekeel.plan"]
    root, execute, move = (spans[f"bundlekeel.{name}"] for name in ("cycle", "execute", "move"))
    assert root.parent_span_id == b""
    assert spans["bundlekeel.plan"].parent_span_id == execute.parent_span_id == root.span_id
    assert move.parent_span_id == execute.span_id
    assert {span.trace_id for span in spans.values()} == {root.trace_id}
    assert move.start_time_unix_nano == (NOW - 3000) * 1_000_000
    assert move.end_time_unix_nano == (NOW - 1000) * 1_000_000
    assert {item.key: item.value.string_value for item in move.attributes}["bundlekeel.bundle"] == "t/n/a"
    assert 'bundlekeel_trace_spans_total{outcome="sent"} 4.0' in render_metrics(telemetry)


@needs_otel
async def test_a_collector_that_refuses_is_counted(collector: Collector, tmp_path: Path) -> None:
    collector.status = 400
    telemetry = PrometheusTelemetry()
    await sent(collector, telemetry, tmp_path / "journal.jsonl")
    assert 'bundlekeel_trace_spans_total{outcome="failed"} 4.0' in render_metrics(telemetry)
    assert len((tmp_path / "journal.jsonl").read_text(encoding="utf-8").splitlines()) == 2
