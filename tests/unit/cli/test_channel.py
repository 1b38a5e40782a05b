"""`bundlekeel channel`, and the channel in `where` and `why`, against a served sidecar in memory."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
import yaml
from rich.console import Console

from bundlekeel.cli import channel, tables, text_views
from bundlekeel.cli.output import TableLayout
from bundlekeel.model.channel_states import UnitState
from bundlekeel.pulsar.channel.responses import ChannelSummary, UnitView
from bundlekeel.views.picture import CodeView, WhyView
from tests.support.fake_wiring import places
from tests.support.shop import BROKERS, CHANNEL, NOW_MS, Shop
from tests.unit.cli.test_commands import Sidecar, served, sidecar

__all__ = ["served", "sidecar"]

RELEASING = "shop/orders/0x40000000_0x50000000"
ENTRY = UnitView(
    bundle=RELEASING,
    state=UnitState.RELEASING,
    owner=None,
    source="b1:8080",
    destination="b2:8080",
    children={},
    force=False,
    version=5,
    since_ms=NOW_MS,
    age_seconds=60.0,
)


@pytest.fixture
def followed(sidecar: Sidecar) -> Sidecar:
    sidecar.shop.follow_channel()
    return sidecar


def summary() -> ChannelSummary:
    """Return the summary of that channel."""
    shop = Shop()
    shop.follow_channel()
    return shop.service.channel()


def test_findings_come_first(followed: Sidecar) -> None:
    result = followed.run("channel")
    assert result.exit_code == 1
    text = result.stdout
    for part in ("InFlightTooLong", RELEASING, "makes a broker own it", "followed", "5 Owned", "1 Releasing"):
        assert part in text
    assert text.index("InFlightTooLong") < text.index("8 bundles")
    assert "ago" in text
    assert not followed.service.asked("channel_bundles")


@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_every_format(followed: Sidecar, output: str) -> None:
    """JSON and YAML say the same and list bundles, as does wide."""
    result = followed.run("channel", "-o", output)
    assert result.exit_code == 1, result.output
    if output == "json":
        answer = json.loads(result.stdout)
        assert answer == yaml.safe_load(followed.run("channel", "-o", "yaml").stdout)
        assert len(answer["bundles"]) == len(CHANNEL.units)
    if output == "wide":
        assert f"{BROKERS[0]} → {BROKERS[2]}" in result.stdout
        assert "into 0x50000000_0x58000000, 0x58000000_0x60000000" in result.stdout


def test_a_listing_is_asked_for_by_its_filters(followed: Sidecar) -> None:
    """State, broker, namespace, page."""
    result = followed.run("channel", "--state", "Owned", "--broker", BROKERS[0], "--limit", "2", "--after", "shop")
    assert "shop/orders/0x00000000_0x10000000" in result.stdout
    entry = {"state": "Owned", "broker": BROKERS[0], "namespace": None, "after": "shop", "limit": 2}
    assert followed.service.asked("channel_bundles") == [entry]
    assert followed.run("channel", "--state", "Sold").exit_code == 2


def test_a_cluster_without_channel(sidecar: Sidecar) -> None:
    """One sentence and the code for a conflict."""
    sidecar.do(sidecar.shop.channel.turn())
    result = sidecar.run("channel")
    assert result.exit_code == 4
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: the brokers run the modular load manager, which has no ownership channel")


def test_it_watches(followed: Sidecar) -> None:
    result = followed.run("channel", "-w", "--interval", "0.1", "--rounds", "2")
    assert result.stdout.count("8 bundles: ") == 2


def drawn(value: object, width: int = 300) -> str:
    screen = Console(file=io.StringIO(), width=width, highlight=False)
    screen.print(value)
    text = screen.file
    assert isinstance(text, io.StringIO)
    return text.getvalue()


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("wide", [False, True])
def test_it_fits_the_terminal(followed: Sidecar, width: int, wide: bool) -> None:
    service = followed.service
    answer = channel.ChannelListing(
        channel=service.channel(), findings=service.channel_findings(), bundles=service.channel_bundles()
    )
    text = drawn(channel.draw(answer, TableLayout(wide, width)), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert all(row.bundle in text for row in answer.findings)


def test_nothing_wrong_and_nothing_known() -> None:
    """An empty channel that is followed, and one that is not."""
    up = replace(summary(), variant="metadata_store", bundles=0, states={}, in_flight_oldest_seconds=0.0)
    text = drawn(channel.draw(channel.ChannelListing(channel=up, findings=[]), TableLayout()))
    for part in ("metadata store", "followed", "no problems found", "0 bundles: no entries"):
        assert part in text
    down = replace(up, variant=None, up=False, detail="no broker has answered")
    text = drawn(channel.draw(channel.ChannelListing(channel=down, findings=[]), TableLayout()))
    assert "not followed: no broker has answered" in text and "no problems found" not in text


def test_where_names_the_entry() -> None:
    """State, source, destination, version and since, in either width."""
    row = places("a", "")[0]
    row = replace(row, bundle=RELEASING, broker="b1:8080", state="unloading", channel=ENTRY)
    for width in (100, 300):
        text = drawn(tables.where([row], TableLayout(width=width)), width)
        for part in ("unloading", "Releasing b1:8080 → b2:8080", "version 5"):
            assert part in " ".join(text.split())


def test_why_tells_a_meaning_and_a_detail_once() -> None:
    """The sentence about a bundle has the meaning of its code already, that about a broker the code's detail."""
    code = CodeView(code="CoolDown", explanation="it moved lately", detail="until 9:00")
    answer = WhyView(
        kind="bundle", name="b", sentence="", codes=[code], history=[], what_would_change_it="wait", broker="b1:8080"
    )
    for sentence, line in (
        ("it stays", "CoolDown: it moved lately (until 9:00)"),
        ("it stays: it moved lately", "CoolDown: until 9:00"),
        ("b1: until 9:00", "CoolDown: it moved lately"),
    ):
        output = drawn(text_views.why(replace(answer, sentence=sentence), TableLayout()))
        assert line in [text.strip() for text in output.splitlines()]


def test_why_names_the_bundle_of_a_topic_first() -> None:
    """The whole bundle moves; then its entry and what is wrong with it."""
    shop = Shop()
    shop.follow_channel()
    finding = replace(shop.service.channel_findings()[0], detail="Releasing for more than 30 s", remedy="wait")
    answer = WhyView(
        kind="topic",
        name="persistent://shop/orders/a",
        bundle=RELEASING,
        broker="b1:8080",
        sentence="it stays",
        codes=[],
        history=[],
        what_would_change_it="nothing",
        channel=ENTRY,
        findings=[finding],
    )
    text = drawn(text_views.why(answer, TableLayout()))
    assert text.index(f"in bundle {RELEASING}") < text.index("it stays") < text.index("Releasing b1:8080 → b2:8080")
    assert "InFlightTooLong: Releasing for more than 30 s; wait" in text
