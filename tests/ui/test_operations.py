"""Operator requests for brokers and bundles from the page: first the dry run, then one request with a reason."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from bundlekeel.model.check import Check
from bundlekeel.model.codes import EXPLANATIONS, Code, explain
from bundlekeel.model.errors import Conflict, Forbidden
from bundlekeel.requests.operator_responses import OperationsView, RelocationView, ScopePauseView
from tests.support.fake_places import BUNDLE, BUNDLES
from tests.support.fake_requests import FakeWishes
from tests.support.fake_service import BROKERS, NOW_MS
from tests.support.page_world import ServedSidecar
from tests.support.security import Tokens
from tests.ui.conftest import HOT, LOADS, NARROW, Open, ask_for_a_plan, findings, short, sign_in, view
from tests.ui.test_states import ServedFake

# One of them is asked nothing of, by the fake's brokers and requests.
DRAINING, CORDONED = BROKERS[1], BROKERS[2]
CHANGES = ("drain", "warm", "cordon", "uncordon", "manual_move", "pause", "resume")


@pytest.fixture
def served(tokens: Tokens) -> Iterator[ServedFake]:
    """A fake behind credentials."""
    with ServedFake(tokens=tokens) as instance:
        instance.fake.mode = "act"
        yield instance


def requests(served: ServedFake) -> list[tuple[str, Any]]:
    """Return the calls that change something, and their dry runs."""
    return [call for call in served.fake.calls if call[0] in CHANGES]


def drawer(page: Page, broker: str) -> Locator:
    """Return the panel of a broker."""
    page.get_by_role("button", name=broker, exact=True).click()
    return page.get_by_role("dialog", name=f"Broker {broker}")


def without_requests(served: ServedFake, *pauses: ScopePauseView) -> None:
    """Remove all requests except these pauses."""

    class Nothing(FakeWishes):
        async def operations(self) -> OperationsView:
            return OperationsView(drains=[], cordons=[], warms=[], pins=[], exclusions=[], pauses=[*pauses])

    served.fake.requests = Nothing(served.fake._called)


def twice(dialog: Locator, button: str) -> None:
    """A double click that comes before the page is drawn again."""
    pressed = dialog.get_by_role("button", name=button)
    expect(pressed).to_be_enabled()
    pressed.evaluate("element => { element.click(); element.click(); }")


OPERATIONS: dict[str, tuple[str, str, str, list[tuple[str, Any]]]] = {
    "drain": (
        "Drain",
        f"Drain {BROKERS[0]}",
        "The drain is asked for.",
        [("drain", (BROKERS[0], True, "", "the-operator")), ("drain", (BROKERS[0], False, "disks", "the-operator"))],
    ),
    "warm": (
        "Warm",
        f"Warm {BROKERS[0]}",
        "The warm is asked for.",
        [("warm", (BROKERS[0], True, "", "the-operator")), ("warm", (BROKERS[0], False, "disks", "the-operator"))],
    ),
    "cordon": (
        "Cordon",
        f"Cordon {BROKERS[0]}",
        "The broker is cordoned.",
        [("cordon", (BROKERS[0], "disks", "the-operator"))],
    ),
}


# What the dry run says, and its one move.
DRY_RUNS = {
    "drain": (
        rf"1 bundle leaves {BROKERS[0]}, 1 stays for now\.(?s:.*)"
        rf"pinned \(1 candidate\): {EXPLANATIONS[Code.PINNED][:1].upper()}",
        rf"{BUNDLE}.*15\.2\sMB/s.*{BROKERS[0]}.*{BROKERS[2]}",
    ),
    "warm": (rf"1 bundle comes to {BROKERS[0]}\.", rf"{BUNDLES[2]}.*15\.2\sMB/s.*{BROKERS[1]}.*{BROKERS[0]}"),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_broker_is_drained_cordoned_warmed(served: ServedFake, tokens: Tokens, open_page: Open, name: str) -> None:
    """The page shows the dry run if the route has one, asks for a reason, sends one request, and confirms it in the
    dialog.
    """
    without_requests(served)
    label, title, done, calls = OPERATIONS[name]
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    drawer(page, BROKERS[0]).get_by_role("button", name=label, exact=True).click()
    dialog = page.get_by_role("dialog", name=title)
    if len(calls) == 2:
        region = dialog.get_by_role("region", name="Dry run")
        text, move = DRY_RUNS[name]
        expect(region).to_contain_text(re.compile(text))
        expect(region.get_by_role("list", name="Moves").get_by_role("listitem")).to_have_text(re.compile(move))
    assert requests(served) == calls[:-1], "nothing but a dry run before somebody confirms it"
    dialog.get_by_label("Reason").fill("disks")
    twice(dialog, f"{label} this broker")
    expect(dialog.get_by_role("status")).to_contain_text(done)
    expect(dialog.get_by_role("button", name="Done")).to_be_focused()
    assert requests(served) == calls
    dialog.get_by_role("button", name="Done").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("dialog", name=f"Broker {BROKERS[0]}")).to_be_visible()


def test_a_drain_is_ended(served: ServedFake, tokens: Tokens, open_page: Open) -> None:
    """The broker's part says who drains it and how far that is; ended, that is sent once."""
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    panel = drawer(page, DRAINING)
    expect(panel.get_by_role("status").first).to_contain_text(re.compile(r"Drain by ann since .*: disks \("))
    expect(panel.locator(".actions").get_by_role("button")).to_have_text(["End drain"])
    panel.get_by_role("button", name="End drain").click()
    dialog = page.get_by_role("dialog", name=f"End drain of {DRAINING}")
    dialog.get_by_label("Reason").fill("disks are new")
    twice(dialog, "End drain")
    expect(dialog.get_by_role("status")).to_contain_text("Ended: drain. Bundles may come to the broker again.")
    assert requests(served) == [("uncordon", (DRAINING, "disks are new", "the-operator"))]


def test_a_drain_says_how_far_it_is(served: ServedFake, tokens: Tokens, open_page: Open) -> None:
    """The page shows the elapsed time, the progress and the estimated rest; for an empty broker, the total time."""
    minute = 60_000

    def become(obstacle: str = "", **changed: Any) -> None:
        class Fixed(FakeWishes):
            async def operations(self) -> OperationsView:
                row = replace((await super().operations()).drains[0], **changed)
                view = OperationsView(drains=[row], cordons=[], warms=[], pins=[], exclusions=[], pauses=[])
                return replace(view, held=obstacle, held_explanation=explain(obstacle))

        served.fake.requests = Fixed(served.fake._called)
        served.fake.change()

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
        "(held, 3 of 5 bundles moved, nothing is moved now: the failsafe job restored broker"
    )
    expect(page.locator(".brokers .remark").filter(has_text="drain")).to_contain_text("drain held, 2 left")
    become(left=0, moved=1, blocked={}, eta_seconds=None, state="empty", emptied_ms=NOW_MS + 5 * minute)
    expect(status).to_contain_text(re.compile(r"\(empty since .*, after 5\smin, 1 bundle moved\)"))
    become(left=None, moved=1, blocked={}, eta_seconds=None, state="unknown", detail="not registered")
    expect(status).to_contain_text("(unknown, 1 bundle moved, not registered)")


def test_an_address_that_changes_as_a_dialog_opens_closes_it(
    served: ServedFake, tokens: Tokens, open_page: Open
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


def test_another_address_closes_a_dialog(served: ServedFake, tokens: Tokens, open_page: Open) -> None:
    """After the browser's Back or a link of another page, a dialog of the old view does not stay open."""
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    view(page, "Executions")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_role("dialog", name="Pause all moving")).to_be_visible()
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


def test_what_lasts_stands_among_the_executions(served: ServedFake, tokens: Tokens, open_page: Open, axe: str) -> None:
    """Drains, cordons and warms with the operator who requested them. An operator ends them there, a viewer reads."""
    page = open_page(served.url)
    sign_in(page, tokens, "viewer")
    view(page, "Executions")
    rows = page.get_by_role("list", name="Asked of brokers").get_by_role("listitem")
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
    assert requests(served) == [("uncordon", (DRAINING, "disks are new", "the-operator"))]


def test_a_sidecar_that_goes_while_a_dialog_is_open(tokens: Tokens, open_page: Open) -> None:
    """The outcome of the request is unknown: the page says so and keeps the input."""
    served = ServedFake(tokens=tokens)
    served.fake.mode = "act"
    served.start()
    without_requests(served)
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


def test_a_bundle_is_moved(served: ServedFake, tokens: Tokens, open_page: Open) -> None:
    """From the list of its broker to the least loaded broker, unless another one is selected. Each has a dry run
    first.
    """
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    drawer(page, BROKERS[0]).get_by_role("button", name=f"Move {BUNDLE}").click()
    dialog = page.get_by_role("dialog", name="Move a bundle")
    expect(dialog.get_by_role("region", name="Dry run")).to_contain_text("moves with its 3 known topics")
    dialog.get_by_label("To broker").select_option(BROKERS[1])
    expect(dialog.get_by_role("list", name="Moves")).to_contain_text(BROKERS[1])
    dialog.get_by_text("What each broker would carry with it").click()
    expect(dialog.get_by_role("listitem").filter(has_text=BROKERS[1]).last).to_contain_text("41.0 % → 71.0 %")
    expect(dialog.get_by_role("listitem").filter(has_text=BROKERS[2])).to_contain_text("not there (policy forbids)")
    dialog.get_by_label("Reason").fill("too near")
    twice(dialog, "Move this bundle")
    expect(dialog.get_by_role("status")).to_contain_text("The move is asked for. It is task req-0000000012")
    who = "the-operator"
    assert requests(served) == [
        ("manual_move", ("unload", BUNDLE, "", False, False, "", who)),
        ("manual_move", ("transfer", BUNDLE, BROKERS[1], False, False, "", who)),
        ("manual_move", ("transfer", BUNDLE, BROKERS[1], False, True, "too near", who)),
    ]


def test_a_refused_move_cannot_be_sent(served: ServedFake, tokens: Tokens, open_page: Open) -> None:
    """The code and why; the button is there and cannot be pressed."""
    served.fake.requests.refused = Code.PINNED
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    drawer(page, BROKERS[0]).get_by_role("button", name=f"Move {BUNDLE}").click()
    dialog = page.get_by_role("dialog", name="Move a bundle")
    expect(dialog.get_by_role("region", name="Dry run")).to_contain_text("pinned (1 candidate)")
    expect(dialog).to_contain_text("It cannot be carried out as it stands")
    dialog.get_by_label("Reason").fill("all the same")
    expect(dialog.get_by_role("button", name="Move this bundle")).to_be_disabled()


def test_a_proposal_says_that_somebody_has_to_approve(served: ServedFake, tokens: Tokens, open_page: Open) -> None:
    """The sidecar requires a second approval."""
    served.fake.requests.review = "r-1"
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    drawer(page, BROKERS[0]).get_by_role("button", name=f"Move {BUNDLE}").click()
    dialog = page.get_by_role("dialog", name="Move a bundle")
    dialog.get_by_label("Reason").fill("too near")
    dialog.get_by_role("button", name="Move this bundle").click()
    expect(dialog.get_by_role("status")).to_contain_text("A second person has to approve it")


def test_what_the_api_refuses_is_said(served: ServedFake, tokens: Tokens, open_page: Open) -> None:
    """A refused dry run is repeated on demand. A refused request keeps the input."""
    without_requests(served)
    served.fake.fail["drain"] = Conflict("no other broker takes bundles", difference=[f"{BROKERS[1]} is cordoned"])
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    drawer(page, BROKERS[0]).get_by_role("button", name="Drain", exact=True).click()
    dialog = page.get_by_role("dialog", name=f"Drain {BROKERS[0]}")
    expect(dialog.get_by_role("alert")).to_contain_text("There is no dry run: no other broker takes bundles")
    expect(dialog.get_by_role("alert").get_by_role("listitem")).to_have_text(f"{BROKERS[1]} is cordoned")
    expect(dialog.get_by_role("button", name="Drain this broker")).to_be_disabled()
    del served.fake.fail["drain"]
    dialog.get_by_role("button", name="Ask again").click()
    expect(dialog.get_by_role("region", name="Dry run")).to_be_visible()
    served.fake.fail["drain"] = Forbidden("the mode was lowered")
    dialog.get_by_label("Reason").fill("disks")
    dialog.get_by_role("button", name="Drain this broker").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Not done: the mode was lowered")
    expect(dialog.get_by_label("Reason")).to_have_value("disks")


def test_all_moving_is_paused_and_resumed(served: ServedFake, tokens: Tokens, open_page: Open) -> None:
    """The dialog announces the effect and stays unchanged when the state changes. Each request is sent once."""
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    page.get_by_role("button", name="Pause", exact=True).click()
    dialog = page.get_by_role("dialog", name="Pause all moving")
    expect(dialog).to_contain_text("No sidecar begins a further move, at once.")
    dialog.get_by_label("For minutes").fill("1")
    dialog.get_by_label("Reason").fill("release")
    twice(dialog, "Pause")
    expect(dialog.get_by_role("status")).to_contain_text("Moving is paused for 1 minute.")
    dialog.get_by_role("button", name="Done").click()
    page.get_by_role("button", name="Resume", exact=True).click()
    dialog = page.get_by_role("dialog", name="Resume moving")
    dialog.get_by_label("Reason").fill("released")
    twice(dialog, "Resume")
    expect(dialog.get_by_role("status")).to_contain_text("Moving is resumed.")
    who = "the-operator"
    assert requests(served) == [("pause", ("release", who, 60.0)), ("resume", ("released", who))]


def test_a_viewer_finds_nothing_to_press(served: ServedFake, tokens: Tokens, open_page: Open) -> None:
    """A viewer sees the requests and the role that they need."""
    page = open_page(served.url)
    sign_in(page, tokens, "viewer")
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    panel = drawer(page, DRAINING)
    expect(panel).to_contain_text("Drain by ann")
    expect(panel).to_contain_text("Draining, cordoning or warming a broker needs role operator.")
    expect(panel.get_by_role("row").nth(1)).to_be_visible()
    expect(panel.get_by_role("button")).to_have_text(["Close"])
    assert requests(served) == []


def test_a_followers_page_says_who_acts(served: ServedFake, tokens: Tokens, open_page: Open) -> None:
    """The request is passed on to the leader, or waits until there is one."""
    without_requests(served)
    served.fake.change(role="follower", member="pod-b")
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    drawer(page, BROKERS[0]).get_by_role("button", name="Cordon", exact=True).click()
    dialog = page.get_by_role("dialog", name=f"Cordon {BROKERS[0]}")
    expect(dialog).to_contain_text("pod-b answers here and passes this on: the leader, pod-a, acts.")
    served.fake.change(leader=None)
    expect(dialog).to_contain_text("No sidecar leads now.")


def test_a_mode_that_carries_nothing_out(served: ServedFake, tokens: Tokens, open_page: Open) -> None:
    """The dry run is shown, and the mode as the reason why it is not confirmed; a cordon moves nothing and is."""
    without_requests(served)
    served.fake.mode = "recommend"
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    panel = drawer(page, BROKERS[0])
    panel.get_by_role("button", name="Drain", exact=True).click()
    dialog = page.get_by_role("dialog", name=f"Drain {BROKERS[0]}")
    expect(dialog.get_by_role("region", name="Dry run")).to_be_visible()
    expect(dialog).to_contain_text("The mode is recommend: the dry run is shown, but nothing is carried out")
    expect(dialog.get_by_role("button", name="Drain this broker")).to_be_disabled()
    page.keyboard.press("Escape")
    panel.get_by_role("button", name="Cordon", exact=True).click()
    expect(page.get_by_role("button", name="Cordon this broker")).to_be_enabled()


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "less than a second"), (36.0, r"about 36\ss")])
def test_how_long_moves_take(served: ServedFake, tokens: Tokens, open_page: Open, seconds: float, text: str) -> None:
    """Never 0 s."""

    class Lasting(FakeWishes):
        async def drain(self, broker: str, *, dry_run: bool, reason: str, by: str) -> RelocationView:
            return replace(await super().drain(broker, dry_run=dry_run, reason=reason, by=by), eta_seconds=seconds)

    served.fake.requests = Lasting(served.fake._called)
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    drawer(page, BROKERS[0]).get_by_role("button", name="Drain", exact=True).click()
    expect(page.get_by_role("region", name="Dry run")).to_contain_text(re.compile(rf"The moves take {text}\."))


def test_bars_say_what_was_asked_for(served: ServedFake, tokens: Tokens, open_page: Open, axe: str) -> None:
    """The bars show requests by a symbol and by text for screen readers, and the age of the values."""
    page = open_page(served.url)
    sign_in(page, tokens, "operator")
    rows = page.get_by_role("list", name="Brokers, busiest first").get_by_role("listitem")
    for broker, states in (
        (BROKERS[0], ("▲ warming", "▽ to be relieved", "report 12 s")),
        (DRAINING, ("▼ drain", "report 47 s")),
        (CORDONED, ("⊘ cordoned", "~ settling after moves", "→ 1 bundle on the way to it")),
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


def test_a_paused_broker_is_said_to_be(served: ServedFake, tokens: Tokens, open_page: Open) -> None:
    """On its bar, and behind it by whom, why and until when; other brokers are not."""
    pause = {"reason": "audit", "by": "ann", "since_ms": NOW_MS}
    without_requests(
        served,
        ScopePauseView(scope=f"broker:{BROKERS[0]}", until_ms=0, **pause),
        ScopePauseView(scope="tenant:shop", until_ms=0, **pause),
    )
    page = open_page(served.url)
    sign_in(page, tokens, "viewer")
    expect(page.get_by_role("list", name="Brokers, busiest first").get_by_text("‖ paused")).to_have_count(1)
    expect(page.get_by_role("img", name=re.compile(rf"^{BROKERS[0]}: .*, paused"))).to_be_visible()
    status = drawer(page, BROKERS[0]).get_by_role("status")
    expect(status).to_contain_text(re.compile(r"Pause by ann since .*: audit \(until somebody ends it\)"))


def test_by_keyboard_on_a_phone(served: ServedFake, tokens: Tokens, open_page: Open) -> None:
    """The dialog fits, takes the focus, and Escape gives it back, first to the drawer and then to the bar."""
    without_requests(served)
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
        expect(dialog.get_by_role("status")).to_contain_text("The drain is asked for.")
        expect(page.locator("button", has_text="End drain")).to_have_count(1)
        dialog.get_by_role("button", name="Done").click()
        expect(page.get_by_role("heading", name=f"Broker {broker}")).to_be_focused()
        page.get_by_role("button", name="Close").click()
        row = (
            page.get_by_role("list", name="Brokers, busiest first")
            .get_by_role("listitem")
            .filter(has_text=short(broker))
        )
        expect(row).to_contain_text("▼ drained, empty")
        assert all(owner.broker_id != broker for owner in served.cluster.model.owners.values())
        view(page, "Executions")
        items = page.get_by_role("list", name="Asked of brokers").get_by_role("listitem")
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
        page.get_by_role("button", name="Move it by hand").click()
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


def test_doctor(open_page: Open) -> None:
    """Failed checks come first, then warnings, each with its finding and the next step. A button repeats the checks."""
    with ServedFake() as served:
        page = open_page(served.url)
        view(page, "Doctor")
        expect(page.get_by_role("main").get_by_role("status")).to_have_text("3 checks: 1 failed, 1 warning, 1 ok")
        rows = page.get_by_role("region", name="Checks").get_by_role("row")
        expect(rows.nth(1)).to_contain_text(f"✕ failedshedding{BROKERS[1]} still sheds itselfrun bundlekeel takeover")
        expect(rows.nth(1).locator("code")).to_have_text("bundlekeel takeover")
        expect(rows.nth(2)).to_contain_text("! warningnicNICs report no limitset capacity.nic_gbps")
        expect(rows.nth(3)).to_contain_text("✓ okmetadata storezk:zk1:2181/pulsar answers")
        expect(rows.nth(3).get_by_role("cell").last).to_be_empty()
        served.fake.change()
        served.fake.findings = [Check(name="shedding", ok=True, detail="off")]
        page.get_by_role("button", name="Check again").click()
        expect(rows).to_have_count(2)
        expect(page.get_by_role("columnheader", name="What to do next")).to_have_count(0)
        served.fake.findings.append(Check(name="seats", ok=False, detail="1 sidecar", fix="start another one"))
        page.get_by_label("Also what must hold before the mode is set to act").check()
        expect(page.get_by_role("main").get_by_role("status")).to_have_text("2 checks: 1 failed, 0 warnings, 1 ok")
        requests = [call for call in served.fake.calls if call[0] == "doctor"]
        assert requests == [("doctor", False), ("doctor", False), ("doctor", True)], "never by itself"


def test_doctor_of_a_whole_sidecar(watched: ServedSidecar, open_page: Open, axe: str) -> None:
    """Every check of the API is in the table, for all users."""
    page = open_page(watched.url)
    view(page, "Doctor")
    answer = httpx.get(f"{watched.url}/api/v1/doctor")
    assert answer.status_code == 200, answer.text
    expect(page.get_by_role("region", name="Checks").get_by_role("row")).to_have_count(1 + len(answer.json()))
    expect(page.get_by_role("row").filter(has_text="metadata store")).to_contain_text("ok")
    assert findings(page, axe) == []
