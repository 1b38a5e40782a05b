"""The table of the channel and the tables of load data, built from topic messages."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from bundlekeel.model.channel_states import UnitState
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import SnapshotError, StoreError
from bundlekeel.pulsar.topics.feed import TopicLoadFeed
from bundlekeel.pulsar.topics.wire import Live, Lost, Opened
from tests.support.topics_stage import BUNDLE, NOBODY, OTHER, Stage, entry, message, stage

__all__ = ["stage"]

LOAD = b'{"weightedMaxEMA":0.5,"msgThroughputIn":1,"msgThroughputOut":2,"updatedAt":7}'


async def test_nothing_half_read_is_shown(stage: Stage) -> None:
    await stage.channel.start(NOBODY)
    stage.say(1, Opened("channel"), entry(BUNDLE, UnitState.OWNED, "a:1"))
    await stage.until(lambda: stage.channel._reading is not None and bool(stage.channel._reading.units))
    with pytest.raises(SnapshotError):
        await stage.channel.view()
    stage.say(1, entry(OTHER, UnitState.OWNED, "b:1"), Live("channel"))
    assert await stage.owner(OTHER) == "b:1"
    stage.say(1, Lost("channel", "away"), Opened("channel"), entry(BUNDLE, UnitState.OWNED, "a:1"))
    await stage.until(lambda: stage.channel._reading is not None and bool(stage.channel._reading.units))
    assert len((await stage.channel.view()).units) == 2
    stage.say(1, entry(OTHER, UnitState.OWNED, "c:1", version=3), Live("channel"))
    await stage.until(lambda: stage.channel._reading is None)
    assert await stage.owner(OTHER) == "c:1"


async def test_the_brokers_rule_decides(stage: Stage) -> None:
    """Not the last message counts but the lawful one; tombstones take entries away; nonsense changes nothing."""
    await stage.channel.start(NOBODY)
    stage.say(
        1,
        Opened("channel"),
        Live("channel"),
        entry(BUNDLE, UnitState.ASSIGNING, "a:1"),
        entry(BUNDLE, UnitState.ASSIGNING, "b:1"),
        entry(BUNDLE, UnitState.OWNED, "a:1", version=2),
        entry(OTHER, UnitState.OWNED, "a:1"),
        message("channel", OTHER, b"nonsense"),
        message("channel", OTHER, None, size=3_000_000),
        message("channel", "no bundle", b"{}"),
        entry("t/n/0x00000000_0xffffffff", UnitState.DELETED, "", "a:1"),
        message("channel", "t/n/0x00000000_0xffffffff", b""),
        entry("t/n/0x00000000_0x40000000", UnitState.OWNED, "a:1"),
    )
    await stage.until(lambda: "t/n/0x00000000_0x40000000" in stage.channel._table.units)
    unit = await stage.channel.unit(BUNDLE)
    assert unit is not None
    assert unit.destination == "a:1"
    view = await stage.channel.view()
    assert sorted(view.units) == ["t/n/0x00000000_0x40000000", BUNDLE, OTHER]
    assert view.units[OTHER].destination == "a:1"
    assert [(lost.bundle, lost.unit.destination) for lost in view.rejected] == [(BUNDLE, "b:1")]


async def test_ages_survive_a_new_reader(stage: Stage) -> None:
    story = (
        Opened("channel"),
        entry(BUNDLE, UnitState.ASSIGNING, "a:1"),
        entry(BUNDLE, UnitState.ASSIGNING, "b:1"),
        entry(OTHER, UnitState.OWNED, "a:1"),
    )
    await stage.channel.start(NOBODY)
    stage.say(1, *story, Live("channel"))
    assert await stage.owner(BUNDLE) == "a:1"
    before = await stage.channel.view()
    assert before.rejected[0].wall_ms == 1000, "it was published then, however late we read it"
    assert before.seen_ms[BUNDLE] > time.time() * 1000 - 60_000
    await asyncio.sleep(0.01)
    stage.say(1, *story, entry(OTHER, UnitState.RELEASING, "b:1", "a:1", version=2), Live("channel"))
    await stage.until(lambda: stage.channel._table.units[OTHER].version == 2)
    after = await stage.channel.view()
    assert after.seen_ms[BUNDLE] == before.seen_ms[BUNDLE]
    assert after.seen_ms[OTHER] > before.seen_ms[OTHER]
    assert after.rejected == before.rejected


async def test_a_topic_not_read_for_long_is_said(tmp_path: Path) -> None:
    """A moment without connection is borne, more is not: what the view then said could be long over."""
    stage = Stage(tmp_path, grace=0.3)
    await stage.channel.start(NOBODY)
    stage.say(1, Opened("channel"), entry(BUNDLE, UnitState.OWNED, "a:1"), Live("channel"))
    assert await stage.owner(BUNDLE) == "a:1"
    stage.say(1, Lost("channel", "the broker is gone"))
    await stage.until(lambda: stage.channel._unsure_since is not None)
    await asyncio.sleep(0.4)
    with pytest.raises(StoreError, match="the broker is gone"):
        await stage.channel.view()
    stage.say(1, Live("channel"))
    await stage.until(lambda: stage.channel._unsure_since is None)
    assert await stage.owner(BUNDLE) == "a:1"
    await stage.channel.close()


# --- load data ---------------------------------------------------------------------------------------------


@pytest.fixture
async def feed(stage: Stage) -> TopicLoadFeed:
    return stage.feed


async def test_unusable_load_data_leaves_the_figures(feed: TopicLoadFeed) -> None:
    feed.received(message("load", "a:1", LOAD))
    good = feed.tables().latest["a:1"]
    for data, size, code in ((b"nonsense", 8, Code.NOT_JSON), (None, 9_999_999, Code.REPORT_TOO_LARGE)):
        for topic in ("load", "bundles"):
            feed.received(message(topic, "a:1", data, size))
            load_tables = feed.tables().latest["a:1"]
            assert load_tables.fault is not None
            assert load_tables.fault[0] == code
            assert (load_tables.load, load_tables.load_ms) == (good.load, good.load_ms)
    feed.received(message("load", "a:1", LOAD))
    assert feed.tables().latest["a:1"].fault is None


async def test_withdrawn_until_both_topics_report(feed: TopicLoadFeed) -> None:
    feed.received(message("load", "a:1", LOAD))
    feed.received(message("bundles", "a:1", b'{"topBundlesLoadData":[]}'))
    for topic in ("load", "bundles"):
        feed.received(message(topic, "a:1", b""))
    load_tables = feed.tables().latest["a:1"]
    assert load_tables.withdrawn_ms > 0
    assert load_tables.load is not None
    assert load_tables.bundles is not None
    feed.received(message("load", "a:1", LOAD))
    assert feed.tables().latest["a:1"].withdrawn_ms == load_tables.withdrawn_ms
    feed.received(message("bundles", "a:1", b'{"topBundlesLoadData":[]}'))
    assert feed.tables().latest["a:1"].withdrawn_ms == 0
