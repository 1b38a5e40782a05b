"""Laws of the book of extensible brokers under any order of messages, answers, deaths and failures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.averages import Averages
from bundlekeel.model.extensible import BundleLoads
from bundlekeel.model.load import CPU, BrokerEndpoint
from bundlekeel.model.snapshot import build_snapshot
from bundlekeel.ports import FeedState, FeedStatus, LatestLoad, LoadTables
from bundlekeel.pulsar.sources.extensible_brokers import BundlesSetting, ExtensibleBrokers, Instant
from tests.support.builders import NOW_MS, bundle_name
from tests.support.memory_feed import broker_load

BROKERS = ("a:1", "b:1", "c:1")
amounts = st.floats(min_value=0, max_value=1e12) | st.sampled_from([0.0, 1.0])
rates = st.tuples(amounts, amounts, amounts, amounts)
scores = st.floats(min_value=0, max_value=5)
brokers = st.sampled_from(BROKERS)
stats = st.dictionaries(st.integers(min_value=1, max_value=5), rates, max_size=4).map(
    lambda rows: BundleLoads(
        names=tuple(bundle_name(number) for number in rows),
        traffic=np.array(list(rows.values()), dtype=float).reshape(-1, 4),
        counts=np.ones((len(rows), 3), dtype=np.int64),
    )
)
events = st.one_of(
    st.tuples(st.just("wait"), st.floats(min_value=0, max_value=2000)),
    st.tuples(st.just("say"), brokers, scores, rates, st.integers(min_value=-100_000, max_value=100_000), stats),
    st.tuples(st.just("withdraw"), brokers),
    st.tuples(st.just("poll"), brokers, stats),
    st.tuples(st.just("fail"), brokers),
    st.tuples(st.just("state"), st.sampled_from(["ok", "connecting", "stuck", "down"])),
    st.tuples(st.just("register"), st.dictionaries(brokers, st.sampled_from([0, NOW_MS]), max_size=3)),
)


class Replay:
    """Applies events one by one."""

    def __init__(self, bundles: BundlesSetting) -> None:
        self.book = ExtensibleBrokers(bundles=bundles, stats_interval=10.0)
        self.seconds = 0.0
        self.state: FeedState = "ok"
        self.latest: dict[str, LatestLoad] = {}
        self.registered = dict.fromkeys(BROKERS, 0)
        self.apply(("register", self.registered))

    @property
    def now(self) -> Instant:
        return Instant(NOW_MS + int(1000 * self.seconds), self.seconds)

    def apply(self, event: tuple[object, ...]) -> None:
        """One event, then what the source does before each picture."""
        match event:
            case ("wait", float(seconds)):
                self.seconds += seconds
            case ("say", str(broker), float(score), tuple(rates), int(skew), BundleLoads() as top):
                load = broker_load(broker, score, rates, self.now.wall_ms + skew, len(top.names))
                now = self.now.wall_ms
                self.latest[broker] = LatestLoad(load=load, bundles=top, load_ms=now, bundles_ms=now)
            case ("withdraw", str(broker)):
                self.latest[broker] = replace(self.latest.get(broker, LatestLoad()), withdrawn_ms=self.now.wall_ms)
            case ("poll", str(broker), BundleLoads() as loads):
                self.book.polled(broker, loads, self.now)
            case ("fail", str(broker)):
                self.book.failed(broker, "no answer")
            case ("state", ("ok" | "connecting" | "stuck" | "down") as state):
                self.state = state
            case ("register", dict(alive)):
                self.registered = alive
                self.book.register(
                    {b: BrokerEndpoint(broker_id=b, web_url="", start_timestamp=at) for b, at in alive.items()}
                )
        self.book.take_in(LoadTables(latest=self.latest, status=FeedStatus(state=self.state)), self.now)


@given(st.sampled_from(["all", "top"]), st.lists(events, max_size=20))
def test_every_registered_broker_is_told_of_once(bundles: BundlesSetting, happened: list[tuple[object, ...]]) -> None:
    """Every registered broker is in a report or excluded with a reason. Values are finite. `last_update` never
    decreases during one registration. A snapshot can be made of the reports.
    """
    replay, last, averages = Replay(bundles), dict[tuple[str, int], int](), Averages()
    for event in happened:
        replay.apply(event)
        reports, excluded = replay.book.reports(replay.now)
        broker_ids = [item.broker_id for item in reports] + [item.broker_id for item in excluded]
        assert sorted(broker_ids) == sorted(replay.registered)
        last = {life: update for life, update in last.items() if life[0] in replay.registered}
        for report in reports:
            life = (report.broker_id, report.start_timestamp)
            assert report.last_update >= last.get(life, 0)
            last[life] = report.last_update
            assert np.isfinite(report.usage).all() and (report.usage >= 0).all()
            assert (report.traffic >= report.bundle_traffic.sum(axis=0) * (1 - 1e-9)).all()
            averages.add_report(report, now_ms=replay.now.wall_ms)
    reports, excluded = replay.book.reports(replay.now)
    build_snapshot(reports=reports, averages=averages, wall_ms=0, mode="extensible", excluded=excluded)


@given(st.lists(st.tuples(scores, rates), min_size=1, max_size=2), rates)
def test_an_imputed_score_is_between_the_least_reported_and_one(
    reported: list[tuple[float, tuple[float, ...]]], quiet: tuple[float, ...]
) -> None:
    """Unless all that are reported are above 1 themselves."""
    replay = Replay("all")
    for broker, (score, traffic) in zip(BROKERS, reported, strict=False):
        replay.apply(("say", broker, score, traffic, 0, BundleLoads(traffic=np.zeros((0, 4)), counts=np.zeros((0, 3)))))
        replay.apply(("poll", broker, BundleLoads(traffic=np.zeros((0, 4)), counts=np.zeros((0, 3), dtype=np.int64))))
    loads = BundleLoads(names=(bundle_name(1),), traffic=np.array([quiet]), counts=np.ones((1, 3), dtype=np.int64))
    replay.apply(("poll", BROKERS[2], loads))
    reports_by_id = {item.broker_id: item for item in replay.book.reports(replay.now)[0]}
    if not any(sum(traffic[2:]) > 0 for _, traffic in reported):
        assert BROKERS[2] not in reports_by_id
        return
    least = min(score for score, _ in reported)
    assert least <= reports_by_id[BROKERS[2]].usage[CPU] / 100 * (1 + 1e-12)
    assert reports_by_id[BROKERS[2]].usage[CPU] / 100 <= max(1.0, least) * (1 + 1e-12)
