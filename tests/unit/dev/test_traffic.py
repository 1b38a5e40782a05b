"""Plans, instruments, reports and the parts of the traffic generator that need no cluster."""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import msgspec
import pytest

from dev.traffic import (
    AdminError,
    Gap,
    Traffic,
    TrafficError,
    TrafficReport,
    TrafficSpec,
    bundle_of,
    place_all_on,
    plan_topics,
    topic_hash,
)
from dev.traffic.admin import ensure_namespace
from dev.traffic.bundles import HASH_END, bundle_index, covers, equal_boundaries
from dev.traffic.meters import GapMeter, Latencies, SeqTracker
from dev.traffic.spec import TopicPlan
from dev.traffic.topic import MAX_PENDING, RETRY_SECONDS, TopicState


def _spec(**changes: Any) -> TrafficSpec:
    return TrafficSpec(**{"service_url": "pulsar://127.0.0.1:1", "admin_url": "http://127.0.0.1:1", **changes})


# --- bundles and plans -------------------------------------------------------------------------


def test_hash_is_what_brokers_say() -> None:
    # Brokers use CRC-32 of the full name; this is the check value of that CRC's catalogue entry.
    assert topic_hash("123456789") == 0xCBF43926


def test_bundles_divide_the_hash_space() -> None:
    edges = equal_boundaries(32)
    assert (edges[0], edges[1], edges[-1], len(edges)) == (0, 0x08000000, HASH_END, 33)
    assert bundle_index(edges, 0) == 0
    assert bundle_index(edges, 0x08000000) == 1
    assert bundle_index(edges, HASH_END) == 31
    assert bundle_of("persistent://t/n/a", [0, HASH_END]) == "t/n/0x00000000_0xffffffff"


def test_covers_knows_parents_children_and_namespaces() -> None:
    topic = "persistent://t/n/a"
    position = topic_hash(topic)
    assert covers("t/n/0x00000000_0xffffffff", topic)
    assert covers("0x00000000_0xffffffff", topic)
    assert not covers("t/other/0x00000000_0xffffffff", topic)
    assert covers(f"0x{position:08x}_0x{position + 1:08x}", topic)
    assert not covers(f"0x{position + 1:08x}_0xffffffff", topic)
    with pytest.raises(ValueError, match="invalid literal"):
        covers("t/n/nonsense", topic)


def test_every_bundle_is_busy_and_rates_add_up() -> None:
    plans = plan_topics(_spec(bundles=32, topics_per_bundle=2))
    assert set(Counter(plan.bundle for plan in plans).values()) == {2}
    assert len(plans) == 64
    assert sum(plan.rate for plan in plans) == pytest.approx(1500)
    rates = sorted((plan.rate for plan in plans), reverse=True)
    assert rates[0] / rates[9] == pytest.approx(10**1.1)
    assert [plan.rate for plan in plans] != rates
    assert plans == plan_topics(_spec(bundles=32, topics_per_bundle=2))
    assert plans != plan_topics(_spec(bundles=32, topics_per_bundle=2, seed=2))


def test_plans_follow_the_real_boundaries() -> None:
    plans = plan_topics(_spec(busy_bundles=2), boundaries=[0, 0x1000000, 0x80000000, HASH_END])
    assert len({plan.bundle for plan in plans}) == 2
    with pytest.raises(TrafficError, match="4 busy bundles"):
        plan_topics(_spec(busy_bundles=4), boundaries=[0, 0x1000000, 0x80000000, HASH_END])


@pytest.mark.parametrize(
    "wrong",
    [
        {"namespace": "plain"},
        {"namespace": "a/b/c"},
        {"bundles": 0},
        {"busy_bundles": 0},
        {"rate_total_msgs": 0},
        {"message_bytes": 8},
    ],
)
def test_wrong_specs_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(TrafficError):
        _spec(**wrong)


# --- instruments -------------------------------------------------------------------------------


def test_tracker_counts_each_number_once_in_any_order() -> None:
    numbers = [*range(50), *range(10)]
    random.Random(3).shuffle(numbers)
    tracker = SeqTracker()
    assert sum(tracker.add(number) for number in numbers) == 50
    assert (tracker.count, tracker.next) == (50, 50)


def test_tracker_names_what_is_missing() -> None:
    acked, received = SeqTracker(), SeqTracker()
    for number in (0, 1, 2, 3, 5, 9):
        acked.add(number)
    for number in (0, 2, 9, 11):
        received.add(number)
    assert received.missing(acked) == 3
    assert acked.missing(received) == 1
    assert 11 in received
    assert 1 not in received


def test_latency_quantiles_are_within_ten_percent() -> None:
    low, high = Latencies(), Latencies()
    assert low.quantile(0.99) == 0
    for ms in range(1, 501):
        low.add(ms)
        high.add(ms + 500)
    whole = Latencies.joined([low, high])
    assert whole.quantile(0.5) == pytest.approx(500, rel=0.1)
    assert whole.quantile(0.99) == pytest.approx(990, rel=0.1)
    assert (whole.max_ms, whole.quantile(1)) == (1000, 1000)
    whole.add(0)
    whole.add(1e12)
    assert whole.max_ms == 1e12


def test_gap_meter_lists_long_silences_only() -> None:
    meter = GapMeter(floor=0.5, expected=0.1)
    meter.mark(1.0)
    assert meter.longest == 0
    meter.restart(10.0)
    for now in (10.1, 10.2, 10.7, 12.7):
        meter.mark(now)
    assert meter.gaps == [(10.7, pytest.approx(2.0))]
    assert meter.longest == pytest.approx(2.0)
    assert meter.open_gap(13.0) is None
    assert meter.open_gap(14.7) == (12.7, pytest.approx(2.0))


# --- a topic's books ---------------------------------------------------------------------------


def _state(rate: float = 10.0) -> TopicState:
    plan = TopicPlan(topic="persistent://demo/traffic/a", bundle="demo/traffic/0x00000000_0xffffffff", rate=rate)
    return TopicState(plan, plan.rate, _spec(message_bytes=30), run=7)


def _publish(state: TopicState, now: float) -> tuple[int, int]:
    message = state.next_message()
    assert message is not None
    state.on_acked(message[0], now, now + 0.004)
    return message


def test_a_failed_send_is_retried_under_its_number_and_is_no_loss() -> None:
    state = _state()
    message = state.next_message()
    assert message is not None
    state.on_failed(*message, now=1.0, error="Timeout")
    assert state.due_retry(1.0) is None
    assert state.unsettled == 1
    assert state.due_retry(1.0 + RETRY_SECONDS) == message
    assert state.report(final=True).lost == 0
    state.on_acked(message[0], 1.2, 1.3)
    state.on_message(state.payload(*message), (1, 1, -1), 1.4)
    report = state.report(final=True)
    assert (report.sent, report.acked, report.consumed, report.lost, report.failed_sends) == (1, 1, 1, 0, 1)
    assert state.errors == {"Timeout": 1}
    assert report.publish_max_ms == pytest.approx(100)


def test_lost_means_acknowledged_and_never_received() -> None:
    state = _state()
    first, second = _publish(state, 1.0), _publish(state, 1.1)
    unsettled = state.next_message()
    assert unsettled is not None
    state.on_message(state.payload(*second), (1, 2, -1), 1.2)
    assert (state.report(final=False).lost, state.unconsumed) == (0, 1)
    assert state.report(final=True).lost == 1
    state.on_message(state.payload(*first), (1, 1, -1), 1.3)
    assert state.report(final=True).lost == 0


def test_redelivery_resend_and_older_runs_are_told_apart() -> None:
    state, older = _state(), TopicState(_state().plan, 1.0, _spec(), run=8)
    message = _publish(state, 1.0)
    state.on_message(older.payload(5, 1), (1, 0, -1), 1.0)
    for key in ((1, 1, -1), (1, 1, -1), (1, 9, -1)):
        state.on_message(state.payload(*message), key, 1.1)
    report = state.report(final=True)
    assert (report.consumed, report.redelivered, report.duplicated) == (1, 1, 1)


def test_a_full_queue_stops_new_messages() -> None:
    state = _state()
    assert all(state.next_message() for _ in range(MAX_PENDING))
    assert state.next_message() is None
    assert state.report(final=False).sent == MAX_PENDING


def test_gaps_carry_wall_time_and_open_ones_are_marked() -> None:
    state = _state()
    state.restart_meters(100.0)
    _publish(state, 100.1)
    _publish(state, 103.1)
    gaps = state.gaps(until=103.2)
    assert [(gap.kind, gap.open) for gap in gaps] == [("publish", False), ("consume", True)]
    assert gaps[0].seconds == pytest.approx(3.0, abs=0.01)
    assert gaps[0].start_wall_ms - gaps[1].start_wall_ms == pytest.approx(104, abs=2)


# --- reports -----------------------------------------------------------------------------------


def _report(*gaps: Gap) -> TrafficReport:
    names = [field for field in TrafficReport.__dataclass_fields__ if field not in ("topics", "gaps")]
    values: dict[str, Any] = dict.fromkeys(names, 0)
    return TrafficReport(**{**values, "final": True, "errors": {"Timeout": 2}, "gaps": list(gaps)})


def test_gaps_join_moves_by_bundle_and_time() -> None:
    plans = plan_topics(_spec(bundles=4))
    near, far = plans[0], plans[1]
    result = [
        Gap(topic=near.topic, bundle=near.bundle, kind="publish", start_wall_ms=10_000, seconds=0.4),
        Gap(topic=near.topic, bundle=near.bundle, kind="consume", start_wall_ms=10_100, seconds=0.9),
        Gap(topic=near.topic, bundle=near.bundle, kind="publish", start_wall_ms=90_000, seconds=5.0),
        Gap(topic=far.topic, bundle=far.bundle, kind="publish", start_wall_ms=10_000, seconds=7.0),
    ]
    report = msgspec.json.decode(msgspec.json.encode(_report(*result)), type=TrafficReport)
    assert report.gap_around(near.bundle, 10_500, 1) == 0.9
    assert report.gap_around(near.bundle, 10_500, 1, "publish") == 0.4
    assert report.gap_around(near.bundle.rpartition("/")[2], 10_500, 1) == 0.9
    assert report.gap_around(near.bundle, 50_000, 1) == 0.0
    assert len(report.gaps_around(near.bundle, 50_000, 60)) == 3


# --- admin -------------------------------------------------------------------------------------


class FakeBroker(BaseHTTPRequestHandler):
    """Broker that owns its one bundle until it is unloaded, and redirects the first request."""

    owner = "other:1"
    log: list[str]
    extensible = False
    failures: list[str]

    def log_message(self, *_: object) -> None:
        """Keep quiet."""

    def _reply(self, status: int, body: object = None, **headers: str) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _me(self) -> str:
        host, port = self.server.server_address[:2]
        return f"{host!s}:{port}"

    def do_GET(self) -> None:
        type(self).log.append(f"GET {self.path}")
        if self.path.startswith("/hop"):
            self._reply(307, Location=f"http://{self._me()}{self.path[4:]}")
        elif self.path.startswith("/loop"):
            self._reply(307, Location="/loop")
        elif self.path.endswith("runtime"):
            kind = "extensions.ExtensibleLoadManagerImpl" if self.extensible else "impl.ModularLoadManagerImpl"
            self._reply(200, {"loadManagerClassName": kind})
        elif self.path.endswith("/bundles"):
            self._reply(200, {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1})
        else:
            if type(self).owner == "" and "authoritative=true" in self.path:
                type(self).owner = self._me()
            self._reply(200, {"httpUrl": f"http://{type(self).owner}"})

    def do_PUT(self) -> None:
        type(self).log.append(f"PUT {self.path}")
        if type(self).failures:
            self._reply(500, {"reason": type(self).failures.pop()})
            return
        # Modular: the destination is remembered for the next lookup. Extensible: it is handed over at once.
        type(self).owner = self._me() if self.extensible and "destinationBroker" in self.path else ""
        self._reply(204)


@pytest.fixture
def broker() -> Iterator[str]:
    FakeBroker.owner, FakeBroker.log, FakeBroker.extensible, FakeBroker.failures = "other:1", [], False, []
    server = HTTPServer(("127.0.0.1", 0), FakeBroker)
    thread = threading.Thread(target=lambda: server.serve_forever(0.01))
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_tenant_that_two_make_at_once_is_asked_for_again(broker: str) -> None:
    bad = "MetadataStoreException$BadVersionException"
    FakeBroker.failures = [bad]
    assert ensure_namespace(f"http://{broker}", "t/n", 1) == [0, 0xFFFFFFFF]
    for failures in (["no disk"], [bad, bad]):
        FakeBroker.failures = failures
        with pytest.raises(AdminError, match="500"):
            ensure_namespace(f"http://{broker}", "t/n", 1)


def test_placing_unloads_and_takes_in_modular_mode(broker: str) -> None:
    place_all_on(broker, f"http://{broker}/hop", ["persistent://t/n/a b", "persistent://t/n/c"])
    assert FakeBroker.owner == broker
    lookup = "GET /lookup/v2/topic/persistent/t/n/a%20b?authoritative=true"
    unload = "PUT /admin/v2/namespaces/t/n/0x00000000_0xffffffff/unload?destinationBroker="
    assert FakeBroker.log[-3:] == [lookup, unload + broker.replace(":", "%3A"), lookup]


def test_placing_names_the_destination_in_extensible_mode(broker: str) -> None:
    FakeBroker.extensible = True
    place_all_on(broker, f"http://{broker}", ["persistent://t/n/a"])
    assert FakeBroker.log[-2].endswith(f"/unload?destinationBroker={broker.replace(':', '%3A')}")
    assert FakeBroker.log[-1] == "GET /lookup/v2/topic/persistent/t/n/a"


def test_redirects_are_bounded(broker: str) -> None:
    with pytest.raises(AdminError, match="redirects"):
        place_all_on(broker, f"http://{broker}/loop", ["persistent://t/n/a"])


# --- the process -------------------------------------------------------------------------------


def test_unreachable_brokers_are_an_admin_error() -> None:
    traffic = Traffic(_spec())
    with pytest.raises(TrafficError, match="not started"):
        traffic.report()
    with pytest.raises(AdminError, match="Refused"), traffic:
        pass


def test_a_dead_process_is_told_with_its_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = Traffic(_spec())
    monkeypatch.setattr("dev.traffic.traffic.WORKER", ["-c", "raise SystemExit('out of luck')"])
    monkeypatch.setattr(traffic, "prepare", lambda: plan_topics(traffic.spec))
    with pytest.raises(TrafficError, match="out of luck"):
        traffic.start()
    with pytest.raises(TrafficError, match="over"):
        traffic.report()


def test_the_process_answers_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    final = msgspec.json.encode(_report()).decode()
    script = (
        f"import sys\nanswers = {{'acked': '{{\"a\": 3}}', 'report': {final!r}, 'stop': {final!r}}}\n"
        "for line in sys.stdin:\n print(answers.get(line.strip(), 1), flush=True)\n if line.strip() == 'stop': break"
    )
    traffic = Traffic(_spec())
    monkeypatch.setattr("dev.traffic.traffic.WORKER", ["-c", script])
    monkeypatch.setattr(traffic, "prepare", lambda: plan_topics(traffic.spec))
    with traffic:
        os.kill(traffic.pid, 0)
        assert traffic.acked() == {"a": 3}
        assert traffic.report().errors == {"Timeout": 2}
    assert traffic.stop() == traffic.report()
