"""Operator requests for brokers and bundles from the page: first the dry run, then one request with a reason."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from bundlekeel.model.codes import EXPLANATIONS, Code, explain
from bundlekeel.model.errors import Conflict, Forbidden
from bundlekeel.model.plan import Verdict
from bundlekeel.requests.manual_moves import ManualMoveView
from bundlekeel.requests.operator_requests import OperationsView
from bundlekeel.views.picture import ComingView
from tests.support.page_world import ServedSidecar
from tests.support.security import Tokens
from tests.support.shop import BROKERS, BUNDLE, BUNDLES, NOW_MS, Shop
from tests.support.spied import with_fields
from tests.support.world import PATIENT
from tests.ui.conftest import HOT, LOADS, NARROW, Open, ask_for_a_plan, findings, short, sign_in, view
from tests.ui.served_shop import ServedShop

# As `request_everything` asks.
DRAINING, CORDONED = BROKERS[1], BROKERS[2]
REQUESTS = ("drain", "warm", "cordon", "uncordon", "transfer", "unload")
CHANGES = (*(f"requests.{verb}" for verb in REQUESTS), "pause", "resume")
ANN = {"by": "ann", "reason": "disks"}
OPERATOR = {"by": "the-operator"}


@pytest.fixture
def served(tokens: Tokens) -> Iterator[ServedShop]:
    """A sidecar in mode act, behind credentials, that moves nothing by itself."""
    with ServedShop(tokens=tokens, mode="act", params=PATIENT) as instance:
        yield instance


def requests(served: ServedShop) -> list[tuple[str, Any]]:
    """Return the calls that change something, and their dry runs."""
    return [call for call in served.spied.calls if call[0] in CHANGES]


async def request_everything(shop: Shop) -> None:
    """Warm the first broker, drain the second one, and cordon the third one."""
    await shop.service.requests.warm(BROKERS[0], dry_run=False, **ANN)
    await shop.service.requests.drain(DRAINING, dry_run=False, **ANN)
    await shop.service.requests.cordon(CORDONED, **ANN)


async def pin_bundle(shop: Shop) -> None:
    """Pin the bundle with most load of the first broker."""
    await shop.service.requests.pin(BUNDLE, seconds=None, **ANN)


def drawer(page: Page, broker: str) -> Locator:
    """Return the panel of a broker."""
    page.get_by_role("button", name=broker, exact=True).click()
    return page.get_by_role("dialog", name=f"Broker {broker}")


def twice(dialog: Locator, button: str) -> None:
    """A double click that comes before the page is drawn again."""
    pressed = dialog.get_by_role("button", name=button)
    expect(pressed).to_be_enabled()
    pressed.evaluate("element => { element.click(); element.click(); }")


OPERATIONS: dict[str, tuple[str, str, str, list[tuple[str, Any]]]] = {
    "drain": (
        BROKERS[0],
        "Drain",
        "The drain is recorded.",
        [
            ("requests.drain", {"dry_run": True, "reason": ""}),
            ("requests.drain", {"dry_run": False, "reason": "disks"}),
        ],
    ),
    "warm": (
        BROKERS[2],
        "Warm",
        "The warm is recorded.",
        [("requests.warm", {"dry_run": True, "reason": ""}), ("requests.warm", {"dry_run": False, "reason": "disks"})],
    ),
    "cordon": (BROKERS[0], "Cordon", "The broker is cordoned.", [("requests.cordon", {"reason": "disks"})]),
}


# Text of the dry run, and one of its moves.
DRY_RUNS = {
    "drain": (
        rf"7 bundles leave {BROKERS[0]}, 1 stays for now\.(?s:.*)"
        rf"pinned \(1 candidate\): {EXPLANATIONS[Code.PINNED][:1].upper()}",
        rf"{BUNDLES[1]}.*15\.0\sMB/s.*{BROKERS[0]}.*{BROKERS[2]}",
    ),
    "warm": (rf"3 bundles come to {BROKERS[2]}\.", rf"{BUNDLES[1]}.*15\.0\sMB/s.*{BROKERS[0]}.*{BROKERS[2]}"),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_broker_is_drained_cordoned_warmed(served: ServedShop, tokens: Tokens, open_page: Open, name: str) -> None:
    """The page shows the dry run if the route has one, asks for a reason, sends one request, and confirms it in the
    dialog.
    """
    served.act(pin_bundle)
    broker, label, done, calls = OPERATIONS[name]
    calls = [(verb, {"broker": broker} | fields | OPERATOR) for verb, fields in calls]
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    drawer(page, broker).get_by_role("button", name=label, exact=True).click()
    dialog = page.get_by_role("dialog", name=f"{label} {broker}")
    if len(calls) == 2:
        region = dialog.get_by_role("region", name="Dry run")
        text, move = DRY_RUNS[name]
        expect(region).to_contain_text(re.compile(text))
        moves = region.get_by_role("list", name="Moves").get_by_role("listitem")
        expect(moves.filter(has_text=BUNDLES[1])).to_have_text(re.compile(move))
    assert requests(served) == calls[:-1], "nothing but a dry run before somebody confirms it"
    dialog.get_by_label("Reason").fill("disks")
    twice(dialog, f"{label} this broker")
    expect(dialog.get_by_role("status")).to_contain_text(done)
    expect(dialog.get_by_role("button", name="Done")).to_be_focused()
    assert requests(served) == calls
    dialog.get_by_role("button", name="Done").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("dialog", name=f"Broker {broker}")).to_be_visible()


def test_a_drain_is_ended(served: ServedShop, tokens: Tokens, open_page: Open) -> None:
    """The broker's part says who drains it and how far that is; ended, that is sent once."""
    served.act(request_everything)
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    panel = drawer(page, DRAINING)
    expect(panel.get_by_role("status").first).to_contain_text(re.compile(r"Drain by ann since .*: disks \("))
    expect(panel.locator(".actions").get_by_role("button")).to_have_text(["End drain"])
    panel.get_by_role("button", name="End drain").click()
    dialog = page.get_by_role("dialog", name=f"End drain of {DRAINING}")
    dialog.get_by_label("Reason").fill("disks are new")
    twice(dialog, "End drain")
    expect(dialog.get_by_role("status")).to_contain_text("Ended: drain. Bundles can move to the broker again.")
    assert requests(served) == [("requests.uncordon", {"broker": DRAINING, "reason": "disks are new"} | OPERATOR)]


def test_a_drain_says_how_far_it_is(served: ServedShop, tokens: Tokens, open_page: Open) -> None:
    """The page shows the elapsed time, the progress and the estimated rest; for an empty broker, the total time."""
    minute = 60_000

    def become(obstacle: str = "", **changed: Any) -> None:
        def change_view(view: OperationsView) -> OperationsView:
            drains = [replace(view.drains[0], **changed)]
            return replace(view, drains=drains, held=obstacle, held_explanation=explain(obstacle))

        served.spied.results["requests.operations"] = change_view
        served.change()

    async def drain(shop: Shop) -> None:
        await shop.service.requests.drain(DRAINING, dry_run=False, **ANN)

    served.act(drain)
    since = int(time.time() * 1000) - 4 * minute
    become(since_ms=since, left=2, moved=3, blocked={"Pinned": 1}, eta_seconds=150.0, state="draining")
    page = open_page(served.url)
    sign_in(page, tokens, "viewer")
    expect(page.locator(".brokers .remark").filter(has_text="drain")).to_contain_text(
        re.compile(r"draining, 2 left, about 3\smin to go")
    )
    status = drawer(page, DRAINING).get_by_role("status")
    expect(status).to_contain_text(
        re.compile(r"for 4\smin: disks \(draining, 3 of 5 bundles moved, about 3\smin to go, 1 pinned\)")
    )
    become(obstacle="PutAside", left=2, moved=3, blocked={}, eta_seconds=None, state="draining")
    expect(status).to_contain_text(
        "(held, 3 of 5 bundles moved, nothing is moved now: the failsafe job turned the brokers'"
    )
    expect(page.locator(".brokers .remark").filter(has_text="drain")).to_contain_text("drain held, 2 left")
    become(left=0, moved=1, blocked={}, eta_seconds=None, state="empty", emptied_ms=NOW_MS + 5 * minute)
    expect(status).to_contain_text(re.compile(r"\(empty since .*, emptied in 5\smin, 1 bundle moved\)"))
    become(left=None, moved=1, blocked={}, eta_seconds=None, state="unknown", detail="not registered")
    expect(status).to_contain_text("(unknown, 1 bundle moved, not registered)")


def test_an_address_that_changes_as_a_dialog_opens_closes_it(
    served: ServedShop, tokens: Tokens, open_page: Open
) -> None:
    """Before the browser has painted the dialog, too: it would stay over another view for good."""
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    view(page, "Executions")
    page.evaluate(
        """view => new MutationObserver((_, watching) => {
            if (!document.querySelector("dialog")) return;
            watching.disconnect();
            location.hash = view;
        }).observe(document.body, {childList: true, subtree: true})""",
        "#/journal",
    )
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("heading", name="Journal", level=1)).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_another_address_closes_a_dialog(served: ServedShop, tokens: Tokens, open_page: Open) -> None:
    """After the browser's Back or a link of another page, a dialog of the old view does not stay open."""
    served.act(request_everything)
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    view(page, "Executions")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("dialog", name="Pause all moves")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("heading", name="Cluster now", level=1)).to_be_focused()
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.go_forward()
    page.get_by_role("button", name="End drain").click()
    expect(page.get_by_role("dialog", name=f"End drain of {DRAINING}")).to_be_visible()
    page.evaluate(f"location.hash = '#/executions?broker={BROKERS[0]}'")
    expect(page.get_by_role("dialog", name=f"Broker {BROKERS[0]}")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("heading", name="Executions", level=1)).to_be_visible()


def test_what_lasts_stands_among_the_executions(served: ServedShop, tokens: Tokens, open_page: Open, axe: str) -> None:
    """Drains, cordons and warms with the operator who requested them. An operator ends them there, a viewer reads."""
    served.act(request_everything)
    page = open_page(served.url)
    sign_in(page, tokens, "viewer")
    view(page, "Executions")
    rows = page.get_by_role("list", name="Drains, cordons and warms").get_by_role("listitem")
    for row, (broker, text) in enumerate(zip(BROKERS, ("Warm by ann", "Drain by ann", "Cordon by ann"), strict=True)):
        expect(rows.nth(row)).to_contain_text(broker)
        expect(rows.nth(row)).to_contain_text(text)
    expect(rows.get_by_role("button")).to_have_count(0)
    assert findings(page, axe) == []
    page.get_by_role("button", name="Sign out").click()
    sign_in(page, tokens, "operator")
    rows.filter(has_text=DRAINING).get_by_role("button", name="End drain").click()
    dialog = page.get_by_role("dialog", name=f"End drain of {DRAINING}")
    dialog.get_by_label("Reason").fill("disks are new")
    twice(dialog, "End drain")
    expect(dialog.get_by_role("status")).to_contain_text("Ended: drain.")
    assert requests(served) == [("requests.uncordon", {"broker": DRAINING, "reason": "disks are new"} | OPERATOR)]


def test_a_sidecar_that_goes_while_a_dialog_is_open(tokens: Tokens, open_page: Open) -> None:
    """The outcome of the request is unknown: the page says so and keeps the input."""
    served = ServedShop(tokens=tokens, mode="act", params=PATIENT)
    served.start()
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    drawer(page, BROKERS[0]).get_by_role("button", name="Drain", exact=True).click()
    dialog = page.get_by_role("dialog", name=f"Drain {BROKERS[0]}")
    expect(dialog.get_by_role("region", name="Dry run")).to_be_visible()
    dialog.get_by_label("Reason").fill("disks")
    served.stop()
    dialog.get_by_role("button", name="Drain this broker").click()
    expect(dialog.get_by_role("alert")).to_contain_text("It is not known whether this was done")
    expect(dialog.get_by_label("Reason")).to_have_value("disks")
    expect(dialog.get_by_role("button", name="Drain this broker")).to_be_enabled()


def test_a_bundle_is_moved(served: ServedShop, tokens: Tokens, open_page: Open) -> None:
    """From the list of its broker to the least loaded broker, unless another one is selected. Each has a dry run
    first.
    """

    def forbid(view: ManualMoveView) -> ManualMoveView:
        return replace(
            view,
            candidates=[
                replace(row, code="PolicyForbids", score_after=None) if row.broker == BROKERS[2] else row
                for row in view.candidates
            ],
        )

    for verb in ("unload", "transfer"):
        served.spied.results[f"requests.{verb}"] = forbid
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    drawer(page, BROKERS[0]).get_by_role("button", name=f"Move {BUNDLE}").click()
    dialog = page.get_by_role("dialog", name="Move a bundle")
    expect(dialog.get_by_role("region", name="Dry run")).to_contain_text("moves with its 1 known topic")
    dialog.get_by_label("To broker").select_option(BROKERS[1])
    expect(dialog.get_by_role("list", name="Moves")).to_contain_text(BROKERS[1])
    dialog.get_by_text("Load of each broker with this bundle").click()
    expect(dialog.get_by_role("listitem").filter(has_text=BROKERS[1]).last).to_contain_text("41.0 % → 61.0 %")
    expect(dialog.get_by_role("listitem").filter(has_text=BROKERS[2])).to_contain_text("refused (policy forbids)")
    dialog.get_by_label("Reason").fill("too near")
    twice(dialog, "Move this bundle")
    expect(dialog.get_by_role("status")).to_contain_text("The move is requested. It is task req-")
    calls = [("unload", "", False, ""), ("transfer", BROKERS[1], False, ""), ("transfer", BROKERS[1], True, "too near")]
    assert [
        (verb, request.get("to", ""), request["execute"], request["reason"])
        for verb in ("unload", "transfer")
        for request in served.spied.asked(f"requests.{verb}")
    ] == calls


def test_a_refused_move_cannot_be_sent(served: ServedShop, tokens: Tokens, open_page: Open) -> None:
    """The code and why; the button is there and cannot be pressed."""
    served.act(pin_bundle)
    # The page has read the bundles before the pin.
    served.spied.results["bundles"] = lambda rows: [replace(row, may_move=True, code=None) for row in rows]
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    drawer(page, BROKERS[0]).get_by_role("button", name=f"Move {BUNDLE}").click()
    dialog = page.get_by_role("dialog", name="Move a bundle")
    expect(dialog.get_by_role("region", name="Dry run")).to_contain_text("pinned (1 candidate)")
    expect(dialog).to_contain_text("This move cannot be executed")
    dialog.get_by_label("Reason").fill("all the same")
    expect(dialog.get_by_role("button", name="Move this bundle")).to_be_disabled()


def test_a_proposal_says_that_somebody_has_to_approve(tokens: Tokens, open_page: Open) -> None:
    """The sidecar requires a second approval."""
    with ServedShop(tokens=tokens, mode="act", params=PATIENT, review=True) as served:
        page = open_page(served.url)
        sign_in(page, tokens, "operator")
        drawer(page, BROKERS[0]).get_by_role("button", name=f"Move {BUNDLE}").click()
        dialog = page.get_by_role("dialog", name="Move a bundle")
        dialog.get_by_label("Reason").fill("too near")
        dialog.get_by_role("button", name="Move this bundle").click()
        expect(dialog.get_by_role("status")).to_contain_text("A second operator must approve it")


def test_what_the_api_refuses_is_said(served: ServedShop, tokens: Tokens, open_page: Open) -> None:
    """A refused dry run is repeated on demand. A refused request keeps the input."""
    served.spied.fail["requests.drain"] = Conflict(
        "no other broker takes bundles", difference=[f"{BROKERS[1]} is cordoned"]
    )
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    drawer(page, BROKERS[0]).get_by_role("button", name="Drain", exact=True).click()
    dialog = page.get_by_role("dialog", name=f"Drain {BROKERS[0]}")
    expect(dialog.get_by_role("alert")).to_contain_text("The dry run failed: no other broker takes bundles")
    expect(dialog.get_by_role("alert").get_by_role("listitem")).to_have_text(f"{BROKERS[1]} is cordoned")
    expect(dialog.get_by_role("button", name="Drain this broker")).to_be_disabled()
    del served.spied.fail["requests.drain"]
    dialog.get_by_role("button", name="Try again").click()
    expect(dialog.get_by_role("region", name="Dry run")).to_be_visible()
    served.spied.fail["requests.drain"] = Forbidden("the mode was lowered")
    dialog.get_by_label("Reason").fill("disks")
    dialog.get_by_role("button", name="Drain this broker").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Not done: the mode was lowered")
    expect(dialog.get_by_label("Reason")).to_have_value("disks")


def test_all_moving_is_paused_and_resumed(served: ServedShop, tokens: Tokens, open_page: Open) -> None:
    """The dialog announces the effect and stays unchanged when the state changes. Each request is sent once."""
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    page.get_by_role("button", name="Pause", exact=True).click()
    dialog = page.get_by_role("dialog", name="Pause all moves")
    expect(dialog).to_contain_text("From now on, no sidecar starts a move.")
    dialog.get_by_label("Minutes").fill("1")
    dialog.get_by_label("Reason").fill("release")
    twice(dialog, "Pause")
    expect(dialog.get_by_role("status")).to_contain_text("Moves are paused for 1 minute.")
    dialog.get_by_role("button", name="Done").click()
    page.get_by_role("button", name="Resume", exact=True).click()
    dialog = page.get_by_role("dialog", name="Resume moves")
    dialog.get_by_label("Reason").fill("released")
    twice(dialog, "Resume")
    expect(dialog.get_by_role("status")).to_contain_text("Moves are resumed.")
    assert requests(served) == [
        ("pause", {"reason": "release", "seconds": 60.0} | OPERATOR),
        ("resume", {"reason": "released"} | OPERATOR),
    ]


def test_a_viewer_finds_nothing_to_press(served: ServedShop, tokens: Tokens, open_page: Open) -> None:
    """A viewer sees the requests and the role that they need."""
    served.act(request_everything)
    page = open_page(served.url)
    sign_in(page, tokens, "viewer")
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    panel = drawer(page, DRAINING)
    expect(panel).to_contain_text("Drain by ann")
    expect(panel).to_contain_text("Draining, cordoning or warming a broker needs role operator.")
    expect(panel.get_by_role("row").nth(1)).to_be_visible()
    expect(panel.get_by_role("button")).to_have_text(["Close"])
    assert requests(served) == []


def test_a_followers_page_says_who_acts(served: ServedShop, tokens: Tokens, open_page: Open) -> None:
    """The request is passed on to the leader, or waits until there is one."""
    served.change(role="follower", member="pod-b")
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    drawer(page, BROKERS[0]).get_by_role("button", name="Cordon", exact=True).click()
    dialog = page.get_by_role("dialog", name=f"Cordon {BROKERS[0]}")
    expect(dialog).to_contain_text("This page is served by pod-b, which forwards requests to the leader, pod-a.")
    served.change(leader=None)
    expect(dialog).to_contain_text("No sidecar leads now.")


def test_a_mode_that_carries_nothing_out(served: ServedShop, tokens: Tokens, open_page: Open) -> None:
    """The dry run is shown, and the mode as the reason why it is not confirmed; a cordon moves nothing and is."""
    served.change(mode="recommend")
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    panel = drawer(page, BROKERS[0])
    panel.get_by_role("button", name="Drain", exact=True).click()
    dialog = page.get_by_role("dialog", name=f"Drain {BROKERS[0]}")
    expect(dialog.get_by_role("region", name="Dry run")).to_be_visible()
    expect(dialog).to_contain_text("The mode is recommend: the dry run is shown, but nothing is executed")
    expect(dialog.get_by_role("button", name="Drain this broker")).to_be_disabled()
    page.keyboard.press("Escape")
    panel.get_by_role("button", name="Cordon", exact=True).click()
    expect(page.get_by_role("button", name="Cordon this broker")).to_be_enabled()


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "less than a second"), (36.0, r"about 36\ss")])
def test_how_long_moves_take(served: ServedShop, tokens: Tokens, open_page: Open, seconds: float, text: str) -> None:
    """Never 0 s."""
    served.spied.results["requests.drain"] = with_fields(eta_seconds=seconds)
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    drawer(page, BROKERS[0]).get_by_role("button", name="Drain", exact=True).click()
    expect(page.get_by_role("region", name="Dry run")).to_contain_text(re.compile(rf"The moves take {text}\."))


def test_bars_say_what_was_asked_for(served: ServedShop, tokens: Tokens, open_page: Open, axe: str) -> None:
    """The bars show requests by a symbol and by text for screen readers, and the age of the values."""
    served.act(request_everything)
    served.brokers = {
        BROKERS[0]: {
            "report_age_seconds": 12.0,
            "measured_seconds": None,
            "verdict": Verdict(code=Code.OVERLOADED, sentence="82.0%"),
        },
        DRAINING: {"report_age_seconds": 47.0, "measured_seconds": None},
        CORDONED: {"unsettled": True, "preallocated": [ComingView(bundle=BUNDLE, age_seconds=42.0)]},
    }
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    rows = page.get_by_role("list", name="Brokers, most loaded first").get_by_role("listitem")
    for broker, states in (
        (BROKERS[0], ("▲ warming", "▽ should give bundles", "report 12 s")),
        (DRAINING, ("▼ drain", "report 47 s")),
        (CORDONED, ("⊘ cordoned", "~ settling after moves", "→ 1 bundle in transit to it")),
    ):
        row = rows.filter(has_text=short(broker))
        for state in states:
            expect(row).to_contain_text(state)
    expect(
        page.get_by_role("img", name=re.compile(rf"^{CORDONED}: 7 % of capacity, 2 bundles, cordoned"))
    ).to_be_visible()
    drawer(page, CORDONED).get_by_role("button", name="End cordon").click()
    expect(page.get_by_role("dialog", name=f"End cordon of {CORDONED}")).to_be_visible()
    assert findings(page, axe) == []


def test_a_paused_broker_is_said_to_be(served: ServedShop, tokens: Tokens, open_page: Open) -> None:
    """On its bar, and behind it by whom, why and until when; other brokers are not."""

    async def pause(shop: Shop) -> None:
        for scope in (f"broker:{BROKERS[0]}", "tenant:shop"):
            await shop.service.requests.pause_scope(scope, seconds=None, by="ann", reason="audit")

    served.act(pause)
    page = open_page(served.url)
    sign_in(page, tokens, "viewer")
    expect(page.get_by_role("list", name="Brokers, most loaded first").get_by_text("‖ paused")).to_have_count(1)
    expect(page.get_by_role("img", name=re.compile(rf"^{BROKERS[0]}: .*, paused"))).to_be_visible()
    status = drawer(page, BROKERS[0]).get_by_role("status")
    expect(status).to_contain_text(re.compile(r"Pause by ann since .*: audit \(until resumed\)"))


def test_by_keyboard_on_a_phone(served: ServedShop, tokens: Tokens, open_page: Open) -> None:
    """The dialog fits, takes the focus, and Escape gives it back, first to the drawer and then to the bar."""
    page = open_page(served.url, size=NARROW | {"width": 360})
    sign_in(page, tokens, "operator")
    opened = drawer(page, BROKERS[0]).get_by_role("button", name="Drain", exact=True)
    opened.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name=f"Drain {BROKERS[0]}")
    expect(dialog.get_by_role("region", name="Dry run")).to_be_visible()
    box = dialog.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 360
    assert dialog.evaluate("element => element.scrollWidth - element.clientWidth") <= 0
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(opened).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name=BROKERS[0], exact=True)).to_be_focused()


def test_a_real_drain_and_its_end(tokens: Tokens, open_page: Open) -> None:
    """Over a whole sidecar: as many bundles leave as in the dry run, the bar shows it, and the broker is opened
    again.
    """
    with ServedSidecar(loads=LOADS, tokens=tokens) as served:
        page = open_page(served.url)
        sign_in(page, tokens, "operator")
        broker = "broker-1.pulsar:8080"
        page.get_by_role("button", name=broker).click()
        page.get_by_role("button", name="Drain", exact=True).click()
        dialog = page.get_by_role("dialog", name=f"Drain {broker}")
        expect(dialog.get_by_role("region", name="Dry run")).to_contain_text("2 bundles leave")
        dialog.get_by_label("Reason").fill("disks")
        dialog.get_by_role("button", name="Drain this broker").click()
        expect(dialog.get_by_role("status")).to_contain_text("The drain is recorded.")
        expect(page.locator("button", has_text="End drain")).to_have_count(1)
        dialog.get_by_role("button", name="Done").click()
        expect(page.get_by_role("heading", name=f"Broker {broker}")).to_be_focused()
        page.get_by_role("button", name="Close").click()
        row = (
            page.get_by_role("list", name="Brokers, most loaded first")
            .get_by_role("listitem")
            .filter(has_text=short(broker))
        )
        expect(row).to_contain_text("▼ drained, empty")
        assert all(owner.broker_id != broker for owner in served.cluster.model.owners.values())
        view(page, "Executions")
        items = page.get_by_role("list", name="Drains, cordons and warms").get_by_role("listitem")
        items.get_by_role("button", name="End drain").click()
        dialog = page.get_by_role("dialog", name=f"End drain of {broker}")
        dialog.get_by_label("Reason").fill("done")
        dialog.get_by_role("button", name="End drain").click()
        expect(page.locator(".task button", has_text="Warm")).to_have_count(1)
        expect(dialog.get_by_role("status")).to_contain_text("Ended: drain.")
        dialog.get_by_role("button", name="Done").click()
        view(page, "Cluster now")
        expect(row).not_to_contain_text("▼")


def test_why_a_bundle_stays_leads_to_a_move(tokens: Tokens, open_page: Open) -> None:
    """Also from a plan's refusal. The viewer reads why the button is disabled."""
    with ServedSidecar(loads=LOADS, tokens=tokens) as served:
        page = open_page(served.url)
        sign_in(page, tokens, "operator")
        ask_for_a_plan(page)
        page.locator(".refusals summary").first.click()
        page.locator(".refusals").get_by_role("button").first.click()
        page.get_by_role("button", name="Move manually").click()
        dialog = page.get_by_role("dialog", name="Move a bundle")
        expect(dialog.get_by_role("region", name="Dry run")).to_contain_text(HOT)
        expect(dialog.get_by_label("To broker").get_by_role("option")).to_have_count(3)


def test_one_broker_alone(tokens: Tokens, open_page: Open) -> None:
    """Nothing can move: each place that plans says so once, without contradiction."""
    with ServedSidecar(loads={HOT: [("shop/orders", 0.2), ("shop/orders", 0.1)]}, tokens=tokens) as served:
        page = open_page(served.url)
        sign_in(page, tokens, "operator")
        expect(page.locator("#verdict")).to_contain_text("One broker")
        panel = drawer(page, HOT)
        expect(panel.get_by_text(f"{HOT} is the only broker: nothing to balance.", exact=True)).to_be_visible()
        expect(panel).to_contain_text("bundles can move as soon as there is another broker")
        panel.get_by_role("button", name="Warm", exact=True).click()
        expect(page.get_by_role("region", name="Dry run")).to_have_text(
            f"Dry run. 0 bundles come to {HOT}. {HOT} is the only broker: nothing to balance."
        )
        page.keyboard.press("Escape")
        panel.get_by_role("button", name=re.compile("^Move ")).first.click()
        expect(page.get_by_role("region", name="Dry run")).to_contain_text("known topics; refused: no other broker")
