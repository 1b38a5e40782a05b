"""The share engine, the last figures of brokers, and the rules it is compared with, on worked examples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bundlekeel.quotas.rules.lines import Lines, latest
from bundlekeel.quotas.rules.shares import ShareMemory, Shares, ShareTuning, claims_of, share_out, water_fill
from bundlekeel.quotas.rules.usage import Key, UsageLine
from evidence.quota_rules import EQUAL, divide_rest, native, per_bundle, pip82, steal
from tests.support.quota_lines import single

GROUPS = ("g",)
USAGE = {"b1": 10.0, "b2": 50.0, "b3": 30.0}
BARE = ShareTuning(room=0.0, floor=0.0, burst=0.0)


def line(usage: float, *, holds: bool = False, partitions: int = 1, peak: float | None = None) -> UsageLine:
    """A topic that publishes messages only."""
    busiest = usage if peak is None else peak
    return UsageLine((usage, 0, 0, 0), (busiest, 0, 0, 0), (holds, False, False, False), partitions)


def key(name: str) -> Key:
    return "g", name


def limit(messages: float) -> np.ndarray:  # type: ignore[type-arg]
    return np.array([[messages, math.inf, math.inf, math.inf]])


def step(
    most: float, lines: dict[str, UsageLine], memory: ShareMemory | None = None, tuning: ShareTuning = BARE
) -> tuple[dict[str, float], Shares, ShareMemory]:
    """One cycle of one participant's topics: shares by topic, the whole result, and the memory."""
    book = Lines.of({"p": {key(name): item for name, item in lines.items()}})
    shares, after = share_out(limit(most), GROUPS, claims_of(book, GROUPS), memory or ShareMemory(), tuning)
    column = shares.share[:, 0].tolist()
    return {name[1]: share for name, share in zip(shares.keys, column, strict=True)}, shares, after


class TestThread:
    """The worked examples of the PIP-82 thread."""

    def test_equal_headroom(self) -> None:
        """Quota 100, use 10/50/30: each adds the remaining 10."""
        assert divide_rest(100, USAGE, EQUAL) == {"b1": 20, "b2": 60, "b3": 40}

    def test_proportional_headroom(self) -> None:
        """The remaining 10 in proportion to use."""
        shares = divide_rest(100, USAGE)
        assert {name: round(rate, 2) for name, rate in shares.items()} == {"b1": 11.11, "b2": 55.56, "b3": 33.33}

    def test_over_quota(self) -> None:
        """Everybody is cut in proportion."""
        assert divide_rest(45, USAGE) == {"b1": 5, "b2": 25, "b3": 15}
        assert divide_rest(45, USAGE, EQUAL) == divide_rest(45, USAGE)

    def test_half_way(self) -> None:
        """80/20: the second probes at 50."""
        assert pip82(100, {"b1": 80, "b2": 20}) == {"b1": 80, "b2": 50}

    def test_half_way_converges(self) -> None:
        """With demand on both sides 80/20 comes to the middle."""
        limits = {"b1": 80.0, "b2": 20.0}
        for _ in range(20):
            limits = pip82(100, limits)
        assert limits["b1"] == pytest.approx(50, rel=0.02)
        assert limits["b2"] == pytest.approx(50, rel=0.02)

    def test_lowest_from_most_dominant(self) -> None:
        usage = {"a": 5.0, "b": 10.0, "c": 15.0, "d": 30.0, "e": 40.0}
        assert steal(usage, usage) == usage | {"a": 5 + 35 / 2, "b": 10 + 20 / 2}

    def test_zero_leaves(self) -> None:
        """A broker that reports 0 is removed from the map."""
        assert pip82(100, {"b1": 80, "b2": 0}) == {"b1": 100}
        assert pip82(100, {"b1": 0}) == {}

    def test_not_under_used(self) -> None:
        """Ours: allocated 70/30, used 80/20 (both as much as they want): the quota is used, and both have room."""
        shares, _, _ = step(100, {"b1": line(80), "b2": line(20)}, tuning=BARE)
        assert shares == pytest.approx({"b1": 80, "b2": 20})

    def test_evens_out(self) -> None:
        """Ours: allocated 70/30 with a demand of 70 each: both are held back, and even out in two cycles."""
        first, _, memory = step(100, {"b1": line(70, holds=True), "b2": line(30, holds=True)})
        second, _, _ = step(100, {"b1": line(first["b1"], holds=True), "b2": line(first["b2"], holds=True)}, memory)
        assert first == pytest.approx({"b1": 60, "b2": 40})
        assert second == pytest.approx({"b1": 50, "b2": 50})


class TestOthers:
    def test_native_is_proportional(self) -> None:
        """Cut to a whole number."""
        assert native(100, {"b1": 20, "b2": 40}, "b1") == 33
        assert native(100, {"b1": 0, "b2": 0}, "b1") == 100
        assert native(-1, {"b1": 5}, "b1") == -1

    def test_native_starves_after_a_move(self) -> None:
        """A broker without usage of its own gets one message a second."""
        assert native(1000, {"b1": 500}, "b2") == 1

    def test_native_keeps_the_dead(self) -> None:
        assert native(100, {"alive": 50, "dead": 50}, "alive") == 50

    def test_per_bundle(self) -> None:
        """100 for ten bundles is ten each, wanted or not."""
        assert per_bundle(100, 10) == 10
        with pytest.raises(ValueError, match="at least one bundle"):
            per_bundle(100, 0)


class TestFill:
    """Max-min fairness."""

    def test_known(self) -> None:
        """10 is content, the others share 90."""
        share, level = water_fill(np.array([100.0]), np.zeros(3, dtype=np.int64), np.array([80.0, 10.0, np.inf]))
        assert share.tolist() == [45, 10, 45]
        assert level.tolist() == [45]

    def test_enough_for_all(self) -> None:
        share, level = water_fill(np.array([100.0]), np.zeros(2, dtype=np.int64), np.array([30.0, 20.0]))
        assert share.tolist() == [30, 20]
        assert level.tolist() == [math.inf]

    def test_groups_are_apart(self) -> None:
        """Each fills its own limit, however different they are."""
        share, _ = water_fill(np.array([1e15, 3.0]), np.array([0, 1, 0, 1]), np.array([np.inf, 1.0, 1.0, 5.0]))
        assert share.tolist() == [1e15 - 1, 1, 1, 2]


class TestShares:
    """One cycle after the other."""

    def test_first_cycle(self) -> None:
        """Topics that were not limited have shown what they want."""
        shares, result, _ = step(100, {"big": line(200), "small": line(10), "mid": line(60)})
        assert shares == pytest.approx({"big": 45, "small": 10, "mid": 45})
        assert result.level[0, 0] == pytest.approx(45)

    def test_example_of_the_page(self) -> None:
        """docs/concepts/quotas.md, step by step."""
        first, _, memory = step(100, {"big": line(200), "mid": line(60), "small": line(10)}, tuning=ShareTuning())
        assert first == pytest.approx({"big": 44.5, "mid": 44.5, "small": 11})
        lines = {"big": line(20), "mid": line(44.5, holds=True), "small": line(10)}
        again, _, memory = step(100, lines, memory, ShareTuning())
        assert again == pytest.approx(first)
        second, _, memory = step(100, lines, memory, ShareTuning())
        assert second == pytest.approx({"big": 22 + 1 / 3, "mid": 66 + 1 / 3, "small": 11 + 1 / 3})
        lines = {"big": line(20), "mid": line(60), "small": line(11.3, holds=True), "new": line(0)}
        third, result, memory = step(100, lines, memory, ShareTuning())
        assert third == pytest.approx({"big": 22, "mid": 55.4, "small": 22.6, "new": 1.25}, abs=0.1)
        assert result.excess[0, 0] == pytest.approx(1.25)

    def test_room_and_bursts(self) -> None:
        shares, _, _ = step(1000, {"a": line(100), "b": line(10)}, tuning=ShareTuning(floor=0))
        assert shares == pytest.approx({"a": 110 + 250, "b": 11 + 250})

    def test_half_way_then_believed(self) -> None:
        """Held back for the first time: at most twice its usage; for the second time: the fair level."""
        lines = {"big": line(200), "new": line(5)}
        _, _, memory = step(100, lines)
        first, _, memory = step(100, {"big": line(95, holds=True), "new": line(5, holds=True)}, memory)
        second, _, _ = step(100, {"big": line(90, holds=True), "new": line(10, holds=True)}, memory)
        assert first["new"] == pytest.approx(10)
        assert second == pytest.approx({"big": 50, "new": 50})

    def test_known_demand_is_not_forgotten(self) -> None:
        """Cut for a while below what it wants, a topic gets that back at once when there is room again."""
        _, _, memory = step(100, {"a": line(80), "b": line(80)})
        for _ in range(2):
            shares, _, memory = step(150, {"a": line(50, holds=True), "b": line(5)}, memory)
        assert shares["a"] == pytest.approx(80)

    def test_less_is_believed_when_seen_twice(self) -> None:
        _, _, memory = step(100, {"a": line(80), "b": line(80)})
        first, _, memory = step(100, {"a": line(50, holds=True), "b": line(30)}, memory)
        second, _, memory = step(100, {"a": line(50, holds=True), "b": line(20)}, memory)
        assert first == pytest.approx({"a": 50, "b": 50})
        assert second == pytest.approx({"a": 70, "b": 30})

    def test_what_has_waited_is_no_demand(self) -> None:
        _, _, memory = step(100, {"a": line(80), "b": line(80)})
        _, _, memory = step(170, {"a": line(50, holds=True), "b": line(50, holds=True)}, memory)
        first, _, memory = step(170, {"a": line(80, holds=True), "b": line(80)}, memory)
        second, _, _ = step(170, {"a": line(80, holds=True), "b": line(80)}, memory)
        assert first["a"] == pytest.approx(80)
        assert second["a"] == pytest.approx(80 + (90 - 80) / 2)

    def test_overcommit(self) -> None:
        """The room of small topics costs the largest nothing, if sums may exceed the limit by it."""
        lines = {"big": line(200), "small": line(50)}
        strict, _, _ = step(100, lines, tuning=ShareTuning(burst=0, floor=0))
        loose, result, _ = step(100, lines | {"small": line(20)}, tuning=ShareTuning(burst=0, floor=0, overcommit=0.1))
        assert strict == pytest.approx({"big": 50, "small": 50})
        assert loose == pytest.approx({"big": 80, "small": 22})
        assert result.excess[0, 0] == pytest.approx(2)

    def test_half_way_to_the_level(self) -> None:
        """Near the level half of the way is less than twice the usage."""
        _, _, memory = step(100, {"a": line(80), "b": line(20)})
        shares, _, _ = step(100, {"a": line(80), "b": line(20, holds=True)}, memory)
        assert shares["b"] == pytest.approx(20 + (50 - 20) / 2)

    def test_from_nothing(self) -> None:
        """A topic with no past use can start, and is half-way to the level after its first cycle."""
        tuning = ShareTuning(room=0, burst=0)
        idle, result, memory = step(100, {"big": line(200), "new": line(0)}, tuning=tuning)
        assert idle["new"] == pytest.approx(2.5)
        assert result.excess[0, 0] == pytest.approx(2.5)
        shares, _, _ = step(100, {"big": line(97.5, holds=True), "new": line(2.5, holds=True)}, memory, tuning)
        assert shares["new"] == pytest.approx(2.5 + (50 - 2.5) / 2)

    def test_zero_leaves_at_once(self) -> None:
        _, _, memory = step(100, {"a": line(200), "b": line(200)})
        shares, _, _ = step(
            100, {"a": line(50, holds=True), "b": line(0)}, memory, ShareTuning(room=0, burst=0, floor=0.02)
        )
        assert shares == pytest.approx({"a": 100, "b": 1})

    def test_absent_for_one_cycle(self) -> None:
        """A topic on its way keeps its claim for a cycle; then its share is used by the others."""
        _, _, memory = step(100, {"a": line(200), "b": line(200)})
        first, _, memory = step(100, {"a": line(50, holds=True)}, memory)
        second, _, memory = step(100, {"a": line(50, holds=True)}, memory)
        assert first == pytest.approx({"a": 50, "b": 50})
        assert second == pytest.approx({"a": 100})
        assert memory.claims.keys == (key("a"),)

    def test_least_rates(self) -> None:
        shares, result, _ = step(3, {name: line(10) for name in "abcde"})
        assert shares == pytest.approx(dict.fromkeys("abcde", 1))
        assert result.excess[0, 0] == pytest.approx(2)

    def test_unlimited_kinds(self) -> None:
        """Are infinite, whatever passes."""
        lines = Lines.of({"p": {key("a"): UsageLine((5, 5, 5, 5), (5, 5, 5, 5))}})
        shares, _ = share_out(limit(100), GROUPS, claims_of(lines, GROUPS), ShareMemory(), BARE)
        assert shares.share[0, 1:].tolist() == [math.inf] * 3
        assert shares.of(key("b")) is None

    def test_partitions(self) -> None:
        """A skewed topic needs its busiest partition times their number."""
        shares, _, _ = step(100, {"p": line(40, partitions=4, peak=20), "t": line(10)})
        assert shares["p"] == pytest.approx(80)

    def test_parts_at_several_brokers(self) -> None:
        """Are put together; other groups are left out."""
        one = {key("p"): line(10, partitions=3, peak=10), ("other", "x"): line(5)}
        other = {key("p"): line(9, holds=True, partitions=3, peak=5)}
        claims = claims_of(Lines.of({"b1": one, "b2": other}), GROUPS)
        assert claims.keys == (key("p"),)
        assert (claims.usage[0, 0], claims.need[0, 0], bool(claims.throttled[0, 0])) == (19, 30, True)

    def test_proportional_split(self) -> None:
        """Inside a broker by past usage, brokers as wholes fair: 25 + 75 + 2 x 50, and a tenth of the way to even."""
        lines: dict[str, dict[Key, UsageLine]] = {
            "b1": {key("a"): line(25, holds=True), key("b"): line(75, holds=True)},
            "b2": {key("c"): line(50, holds=True), key("d"): line(50, holds=True)},
        }
        memory = ShareMemory()
        claims = claims_of(Lines.of(lines), GROUPS)
        for _ in range(2):
            shares, memory = share_out(
                limit(200), GROUPS, claims, memory, ShareTuning(room=0, floor=0, burst=0, split="proportional")
            )
        assert shares.share[:, 0] == pytest.approx([27.5, 72.5, 50, 50])

    def test_nobody(self) -> None:
        """No topics: no shares."""
        shares, memory = share_out(limit(100), GROUPS, claims_of(Lines(), GROUPS), ShareMemory(), BARE)
        assert shares.keys == memory.claims.keys == ()


class TestLatest:
    """The last figures of each broker."""

    def test_what_was_measured_replaces_what_was_there(self) -> None:
        before = figures({"p": {"a": line(100), "b": line(1)}, "q": {"a": line(1)}})
        lines = latest(before, figures({"p": {"a": line(101), "c": line(2)}, "q": {}}), "pq")
        assert single(lines) == {"p": {key("a"): line(101), key("c"): line(2)}}

    def test_a_silent_broker_keeps_its_last_figures(self) -> None:
        lines = figures({"p": {"a": line(1), "z": line(4)}, "q": {"a": line(2)}})
        for usage in range(20):
            lines = latest(lines, figures({"q": {"b": line(usage)}}), "pq")
        assert single(lines) == {"p": {key("a"): line(1), key("z"): line(4)}, "q": {key("b"): line(19)}}
        assert single(latest(lines, figures({"q": {"b": line(3)}}), "q")) == {"q": {key("b"): line(3)}}

    def test_nobody_answers(self) -> None:
        """All keep theirs; who was never heard has none."""
        lines = figures({"p": {"a": line(1)}})
        assert single(latest(lines, figures({}), "pq")) == {"p": {key("a"): line(1)}}
        assert single(latest(Lines(), figures({}), "pq")) == {}


def figures(lines: dict[str, dict[str, UsageLine]]) -> Lines:
    return Lines.of({name: {key(topic): item for topic, item in rows.items()} for name, rows in lines.items()})
