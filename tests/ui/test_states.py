"""Messages of states with little data, and views that need a larger cluster."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest
from playwright.sync_api import expect

from bundlekeel.leader.state.responses import EndedView, TakeoverView
from bundlekeel.model.errors import Conflict, Forbidden
from bundlekeel.model.plan import Verdict
from bundlekeel.model.response_fields import Json
from bundlekeel.recalibration.adopting.responses import ThresholdsView, TrialView
from bundlekeel.views.picture import ComingView, CycleView
from tests.support.security import Tokens
from tests.support.shop import BROKERS, BUNDLES, NOW_MS, Shop
from tests.support.spied import always, with_fields
from tests.support.threshold_cases import as_bytes, document, proposed
from tests.support.world import with_params
from tests.ui.conftest import NARROW, Open, short, sideways, sign_in, view
from tests.ui.served_shop import ServedShop

EFFECT = {
    "kind": "effect",
    "wall_ms": NOW_MS,
    "source": BROKERS[0],
    "destination": BROKERS[2],
    "predicted": 0.25,
    "realised": 0.2,
    "outcome": "helped",
    "sentence": "3 moves: helped",
}


TRIAL = TrialView(
    seconds=1800.0,
    needed_seconds=21_600.0,
    imbalance=0.11,
    imbalance_promised=0.132,
    imbalance_before=None,
    moves_per_hour=4.0,
    moves_promised=4.4,
    moves_before=None,
)
PUT_ASIDE = CycleView(
    id=1,
    wall_ms=NOW_MS,
    sentence="nothing moves",
    verdict="Overloaded",
    moves=1,
    seconds=0.1,
    obstacle="PutAside",
    obstacle_explanation="it was put aside",
)


SAID: dict[str, tuple[Json, str]] = {
    "paused": (
        {"paused": {"reason": "release", "by": "ann", "until_ms": None}},
        "Moves are paused by ann until an operator resumes them: release",
    ),
    "no leader": ({"leader": None}, "No sidecar leads now. No bundle moves until a leader is elected."),
    "no store": (
        {"store": {"connected": False, "session_seconds": 0}},
        "The metadata store does not respond. No bundle moves until it responds again.",
    ),
    "an obstacle": (
        {
            "mode": "act",
            "acting_obstacle": "PutAside",
            "acting_detail": "by failsafe: no cycle for 10 min",
            "cycle": PUT_ASIDE,
        },
        "The mode is act, but no plan is executed now: it was put aside (by failsafe: no cycle for 10 min).",
    ),
    "taken over": (
        {
            "mode": "recommend",
            "takeover": TakeoverView(active=True, by="ann", reason="x", wall_ms=0, namespaces=("a/b",), ended=None),
        },
        "Nothing balances a/b: no plan is executed, and the brokers' own shedding is off since the takeover by ann at",
    ),
    "settling": ({"settling": {"sentence": "waits for broker-3 to come back"}}, "waits for broker-3 to come back"),
    "old": ({}, "The last cycle ended"),
}


@pytest.mark.parametrize("name", SAID)
def test_what_stands_in_the_way_is_said(open_page: Open, name: str) -> None:
    """It appears by itself on an open page."""
    changed, message = SAID[name]
    with ServedShop() as served:
        page = open_page(served.url)
        page.get_by_role("heading", name="Cluster now").wait_for()
        served.change(**changed)
        expect(page.locator(".head .notice").filter(has_text=message)).to_be_visible()


TAKEN = TakeoverView(active=True, by="ann", reason="x", wall_ms=0, namespaces=(), ended=None)
BY = "by ann since 01 Jan 00:00:00 UTC"
ENDED = EndedView(by="the failsafe", reason="x", wall_ms=NOW_MS, deadman=False)
TAKEOVERS: dict[str, tuple[Json, str]] = {
    "none": ({}, "Takeover none: the brokers shed by their own settings"),
    "whole": ({"takeover": TAKEN}, f"Takeover the whole cluster, {BY}"),
    "partial": ({"takeover": replace(TAKEN, namespaces=["a/b", "a/c"])}, f"Takeover only a/b, a/c, {BY}"),
    "many": ({"takeover": replace(TAKEN, namespaces=["a/b"] * 5)}, f"Takeover only a/b, a/b, a/b and 2 more, {BY}"),
    "ended": (
        {"takeover": replace(TAKEN, active=False, ended=ENDED)},
        "Takeover ended by the failsafe at 21 Sept 14:13:20 UTC: the brokers shed by their own settings",
    ),
    "not read": ({"takeover_known": False}, "Takeover not known yet"),
}


SHEDDING: dict[str, tuple[Json, bool]] = {
    "recommend": ({"mode": "recommend"}, False),
    "act": ({"mode": "act"}, True),
    "taken over": ({"mode": "recommend", "takeover": TAKEN}, True),
    "in part": ({"mode": "act", "takeover": replace(TAKEN, namespaces=["a/b"])}, False),
}


@pytest.mark.parametrize("name", SHEDDING)
def test_own_shedding_is_told_where_it_is_not_wanted(open_page: Open, name: str) -> None:
    """Before a takeover brokers should shed load. Under a partial takeover they shed the other namespaces."""
    changed, message = SHEDDING[name]
    with ServedShop() as served:
        served.brokers = {BROKERS[0]: {"sheds_itself": True}}
        served.change(**changed)
        page = open_page(served.url)
        bar = page.get_by_role("list", name="Brokers, most loaded first").get_by_role("listitem").first
        expect(bar).to_contain_text("should give bundles")
        expect(bar.get_by_text("sheds by itself")).to_have_count(int(message))


@pytest.mark.parametrize("name", TAKEOVERS)
def test_whether_the_cluster_is_taken_over(open_page: Open, name: str) -> None:
    """The facts show whole, partial or no takeover. An unread state is not shown as none."""
    changed, message = TAKEOVERS[name]
    with ServedShop() as served:
        served.change(**changed)
        page = open_page(served.url)
        expect(page.locator(".facts > div").filter(has_text="Takeover")).to_have_text(message.replace(" ", "", 1))


async def exclude_broker(shop: Shop) -> None:
    """Let a fourth broker have a report that cannot be read."""
    shop.cluster.source.exclude("broker-3.pulsar:8080", "NotJson", "no JSON at byte 12")


def test_no_picture_yet(open_page: Open) -> None:
    """Nothing is drawn, and a message says why. Later the snapshot appears automatically."""
    with ServedShop() as served:
        served.spied.results["brokers"] = always([])
        page = open_page(served.url)
        expect(page.locator("#verdict")).to_contain_text("The load of the cluster is not known yet.")
        expect(page.get_by_text("No broker has reported yet. The view Doctor tests each connection.")).to_be_visible()
        del served.spied.results["brokers"]
        served.act(exclude_broker)
        served.change()
        expect(page.get_by_role("button", name=BROKERS[0])).to_be_visible()
        expect(page.get_by_text("not json")).to_be_visible()


def test_a_sidecar_that_went_away(open_page: Open) -> None:
    """The old picture stays, with its age; a page that opens then says so too."""
    served = ServedShop()
    served.start()
    page = open_page(served.url)
    page.get_by_role("heading", name="Cluster now").wait_for()
    expect(page.locator(".facts")).to_contain_text("live")
    served.stop()
    expect(page.get_by_role("alert")).to_contain_text("The sidecar does not respond. The values on this page are from")
    expect(page.get_by_role("button", name=BROKERS[0])).to_be_visible()


def test_brokers_that_cannot_be_read(open_page: Open) -> None:
    """The head shows them too, with the effect, since they are the last bars. Old messages have a date."""
    silent = {"state": "StaleReport", "detail": "", "score_ratio": None, "verdict": None, "report_age_seconds": None}
    coming = [ComingView(bundle=BUNDLES[1], age_seconds=42.0)]
    with ServedShop() as served:
        served.act(exclude_broker)
        served.brokers = {BROKERS[1]: silent, BROKERS[2]: {"preallocated": coming}}
        page = open_page(served.url)
        notice = page.locator(".head .notice")
        expect(notice.last).to_contain_text("1 bundle is in transit")
        expect(notice.filter(has_text="no usable load report")).to_contain_text(
            "2 brokers have no usable load report, so no bundle moves to or from them: "
            f"{BROKERS[1]}, broker-3.pulsar:8080."
        )
        expect(notice.locator(".whole").last).to_have_text("broker-3.pulsar:8080.")
        expect(notice.filter(has_text="The last cycle ended")).to_contain_text(
            re.compile(r"at \d\d Sept \d\d:\d\d:\d\d UTC")
        )
        bars = page.get_by_role("list", name="Brokers, most loaded first").get_by_role("listitem")
        expect(bars.filter(has_text=short(BROKERS[1]))).to_contain_text("stale report")


def test_a_sidecar_of_another_release(open_page: Open) -> None:
    """An open page says so; what it cannot draw it says, and the other views stay usable."""
    with ServedShop() as served:
        page = open_page(served.url, may_break=True)
        page.get_by_role("heading", name="Cluster now").wait_for()
        served.change(version="0.2.0")
        notice = page.locator(".head .notice").filter(
            has_text="runs release 0.2.0, but this page is from release 0.1.0"
        )
        expect(notice.get_by_role("button", name="Reload the page")).to_be_visible()
        page.route("**/api/v1/settings", lambda route: route.fulfill(json=[{"key": "mode"}]))
        view(page, "Settings")
        expect(page.get_by_role("main").get_by_role("alert")).to_contain_text("may be from different releases")
        view(page, "Journal")
        expect(page.get_by_role("main").get_by_role("alert")).to_have_count(0)
        page.get_by_role("button", name="Reload the page").click()
        expect(page.get_by_role("heading", name="Journal")).to_be_visible()
        expect(page.locator(".head .notice").filter(has_text="runs release")).to_have_count(0)


def test_nothing_usable_is_said(open_page: Open) -> None:
    """Instead of an empty page, where not even the state is what this page knows."""
    with ServedShop() as served:
        page = open_page(served.url, may_break=True)
        page.route("**/api/v1/state", lambda route: route.fulfill(json={"version": "9"}))
        served.change()
        expect(page.get_by_role("alert")).to_contain_text("This page cannot show the response of the sidecar")


@pytest.mark.parametrize("code", ["Balanced", "HitCount"])
def test_an_empty_plan_says_so_once(open_page: Open, code: str) -> None:
    """A waiting period has a box with the remedy. The line above says that nothing moves."""
    with ServedShop() as served:
        verdict = Verdict(code=code, sentence="seen 2 times of 8")
        served.spied.results["make_plan"] = with_fields(moves=[], splits=[], verdict=verdict)
        page = open_page(served.url)
        view(page, "Plan")
        page.get_by_role("button", name="Request a plan").click()
        expect(page.locator(".planline")).to_contain_text("0 moves")
        boxes = page.get_by_role("main").locator(".notice")
        expect(boxes).to_have_count(int(code == "HitCount"))


async def follow_channel(shop: Shop) -> None:
    """Let the sidecar have read an ownership channel."""
    shop.follow_channel()


def test_findings_of_the_channel(open_page: Open) -> None:
    """Each finding has its remedy. A modular cluster has none, and the page says why."""
    with ServedShop() as served:
        page = open_page(served.url)
        view(page, "Channel")
        expect(page.get_by_text("has no ownership channel")).to_be_visible()
        served.act(follow_channel)
        served.change(cluster_mode="extensible")
        expect(page.get_by_role("heading", name="in flight too long")).to_have_count(2)
        expect(page.get_by_text("the leader broker's monitor").first).to_be_visible()
        expect(page.get_by_text("5 owned")).to_be_visible()


def test_effects_beside_what_was_predicted(open_page: Open) -> None:
    """Two bars as long as their figures."""
    with ServedShop() as served:
        served.spied.results["journal"] = always([EFFECT])
        page = open_page(served.url)
        view(page, "Journal")
        entry = page.locator(".entry.effect")
        expect(entry).to_contain_text("helped")
        expect(entry.locator(".pairrow").nth(0)).to_contain_text("25.0 %")
        expect(entry.locator(".pairrow").nth(1)).to_contain_text("20.0 %")
        bars = [entry.locator(".bar").nth(row).bounding_box()["width"] for row in range(2)]
        assert bars[1] / bars[0] == pytest.approx(0.8, abs=0.02)


async def adopt_another(shop: Shop) -> None:
    """Adopt a newer proposal, then let there be the first one again."""
    another = document(shop.clock.wall_ms(), {"max_moves_per_source": proposed(6.0, 4.0)})
    for day, values in ((16, another), (17, document(shop.clock.wall_ms()))):
        shop.proposed.put(f"2026-09-{day}T020000Z/thresholds.json", as_bytes(values))
        await shop.calibration.check()
        if values is another:
            await shop.service.features["recalibration"].adopt(digest=None, force=True, reason="looks right", by="ann")


def with_trial(trial: TrialView) -> Callable[[ThresholdsView], ThresholdsView]:
    """Return a function that replaces the figures of the trial."""

    def change(view: ThresholdsView) -> ThresholdsView:
        assert view.adopted is not None
        return replace(view, adopted=replace(view.adopted, trial=trial))

    return change


def test_thresholds_with_evidence(open_page: Open, tokens: Tokens) -> None:
    """The proposal, evidence with intervals, objections, and the trial. An operator may revert it."""
    with ServedShop(tokens=tokens, params=with_params(avg_low_threshold_percent=7.5)) as served:
        served.act(adopt_another)
        served.spied.results["recalibration.view"] = with_trial(TRIAL)
        page = open_page(served.url)
        sign_in(page, tokens, "operator")
        view(page, "Thresholds")
        expect(page.get_by_role("row", name="avg_low_threshold_percent")).to_contain_text("7.5")
        expect(page.get_by_role("row", name="Moves an hour")).to_contain_text("6.0 (5.4 to 6.6)")
        expect(page.get_by_role("row", name="max/mean of score")).to_contain_text("1.120 (1.108 to 1.132)")
        expect(page.get_by_text("max/mean of score 1.110 (promised at most 1.132)")).to_be_visible()
        expect(page.get_by_text("step too large")).to_be_visible()
        expect(page.get_by_text("If the result is worse, the values are reverted automatically.")).to_be_visible()
        expect(page.get_by_role("button", name="Adopt")).to_have_count(0)
        page.set_viewport_size(NARROW)
        assert sideways(page) == []
        page.get_by_label("Revert these values").fill("too eager")
        page.get_by_role("button", name="Revert").click()
        expect(page.get_by_label("Revert these values")).to_have_value("")
        (request,) = served.spied.asked("recalibration.revert")
        assert (request["reason"], request["by"]) == ("too eager", "the-operator") and request["digest"]


def test_a_trial_without_figures_is_no_perfect_one(open_page: Open) -> None:
    """It says that nothing is measured yet, and what keeps the leader from balancing."""
    with ServedShop() as served:
        served.act(adopt_another)
        unmeasured = replace(TRIAL, seconds=0.0, imbalance=None, moves_per_hour=None, obstacle="BrokersShedThemselves")
        served.spied.results["recalibration.view"] = with_trial(unmeasured)
        page = open_page(served.url)
        view(page, "Thresholds")
        message = "Nothing is measured yet. Bundlekeel does not balance now: brokers shed themselves. If the result"
        expect(page.get_by_text(message)).to_be_visible()
        expect(page.get_by_text("max_moves_per_source: 6 (settings: 4)")).to_be_visible()


def test_settings_are_found(open_page: Open) -> None:
    """By a part of their name, or only those that differ from the default."""
    with ServedShop() as served:
        rows = httpx.get(f"{served.url}/api/v1/settings").json()
        overrides = [row for row in rows if row["origin"] != "default"]
        page = open_page(served.url)
        view(page, "Settings")
        expect(page.get_by_text(f"{len(rows)} settings")).to_be_visible()
        page.get_by_label("only values that differ from the defaults").check()
        expect(page.get_by_role("row", name="member_id")).to_contain_text("pod-a")
        expect(page.get_by_text(f"{len(overrides)} settings", exact=True)).to_be_visible()
        page.get_by_label("Show keys with").fill("member_id")
        expect(page.get_by_text("1 setting", exact=True)).to_be_visible()
        page.get_by_label("Show keys with").fill("nothing")
        expect(page.get_by_text("0 settings")).to_be_visible()


REFUSED: dict[str, tuple[Exception, str]] = {
    "changed": (
        Conflict("the inputs changed since the plan was made", difference=["shop/orders would stay"]),
        "Not done, because things have changed: the inputs changed since the plan was made",
    ),
    "forbidden": (Forbidden("the mode was lowered"), "Not done: the mode was lowered"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_execution_is_explained(open_page: Open, tokens: Tokens, name: str) -> None:
    """The changes since the plan are listed, and the plan stays on the page."""
    error, message = REFUSED[name]
    with ServedShop(tokens=tokens) as served:
        served.change(mode="act")
        served.spied.fail["execute"] = error
        page = open_page(served.url)
        sign_in(page, tokens, "operator")
        view(page, "Plan")
        page.get_by_role("button", name="Request a plan").click()
        page.get_by_label("Execute 3 moves").fill("try")
        page.get_by_role("button", name="Execute this plan").click()
        alert = page.get_by_role("main").get_by_role("alert")
        expect(alert).to_contain_text(message)
        expect(alert.get_by_role("listitem")).to_have_text(["shop/orders would stay"] * (name == "changed"))
        expect(page.get_by_role("region", name="Moves")).to_be_visible()
