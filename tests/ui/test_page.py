"""Tasks of an operator on the page: see the imbalance, request a plan, see why, try what-ifs, execute a plan."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.support.page_world import ServedSidecar
from tests.support.security import Tokens
from tests.ui.conftest import HOT, LOADS, NARROW, VIEWS, Open, ask_for_a_plan, short, sideways, sign_in, view

CARRIES = r"^Broker broker-0 carries 2\.44 times the mean \(83\s% of its capacity, the mean is 34\s%\)"
VERDICT = re.compile(CARRIES + r"; the plan would move 4 bundles\.$")
YET = re.compile(CARRIES + r"\. No moves planned yet\.$")


@pytest.fixture
def guarded(tokens: Tokens) -> Iterator[ServedSidecar]:
    """The same cluster with credentials. Its brokers take 0.4 s for each unload."""
    with ServedSidecar(loads=LOADS, tokens=tokens, pace=0.4) as served:
        yield served


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_unbalanced_is_said_on_top(watched: ServedSidecar, open_page: Open, scheme: str) -> None:
    """The verdict names the broker and how much too much it carries; bars and figures agree with it."""
    page = open_page(watched.url, scheme=scheme)
    expect(page.locator("#verdict")).to_have_text(VERDICT)
    assert page.url.endswith("/ui/"), "the bare address leads to the page"
    bars = page.get_by_role("list", name="Brokers, most loaded first").get_by_role("listitem")
    expect(bars).to_have_count(3)
    expect(bars.first).to_contain_text(short(HOT))
    expect(bars.first).to_contain_text("83 %")
    expect(page.get_by_role("img", name=f"{HOT}: 83 % of capacity, 36 bundles")).to_be_visible()
    widths = [bars.nth(row).locator(".bar").bounding_box()["width"] for row in range(3)]
    assert widths[0] / widths[1] == pytest.approx(0.83 / 0.15, rel=0.05) and widths[1] > widths[2] > 0
    expect(page.get_by_role("list", name="Namespaces, by throughput")).to_contain_text("Ashop/orders 43.0 MB/s")
    for fact in ("recommend: shows what it would do, moves nothing", "a (this one)", "modular", "live"):
        expect(page.locator(".facts")).to_contain_text(fact)


def test_a_broker_says_why_and_what_it_carries(watched: ServedSidecar, open_page: Open) -> None:
    """The panel has the reason in words and its largest bundles. After closing, the focus is where it was."""
    page = open_page(watched.url)
    page.get_by_role("button", name=HOT).click()
    drawer = page.get_by_role("dialog", name=f"Broker {HOT}")
    expect(drawer.get_by_role("row")).to_have_count(37)
    expect(drawer.get_by_role("row").nth(1)).to_contain_text("20.0 MB/s")
    expect(drawer).to_contain_text("What would change it")
    expect(drawer.get_by_text("against a mean of 34.0 %")).to_have_text(f"{HOT}: 83.0 % against a mean of 34.0 %.")
    planned = drawer.get_by_role("heading", name="What the last plan moves").locator("+ ul").get_by_role("listitem")
    expect(planned).to_have_count(3)
    expect(planned.first).to_contain_text(re.compile(rf"{HOT} 83\.0\s% → 63\.0\s%"))
    drawer.get_by_role("button", name="Close").click()
    expect(drawer).to_have_count(0)
    expect(page.get_by_role("button", name=HOT)).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_plan_and_why(watched: ServedSidecar, open_page: Open, scheme: str) -> None:
    """Moves, before and after, refusals with reasons; each move opens why. Nothing changes, and no user may execute."""
    before = dict(watched.cluster.model.owners)
    page = open_page(watched.url, scheme=scheme)
    ask_for_a_plan(page)
    moves = page.get_by_role("region", name="Moves").get_by_role("row")
    assert moves.count() == 5
    expect(page.locator(".planline")).to_have_text(
        "4 moves: the most loaded broker goes from 2.44 to 1.06 times the mean share of capacity."
    )
    pairs = page.get_by_role("list", name="Load of each broker before and after").get_by_role("listitem")
    expect(pairs).to_have_count(3)
    expect(pairs.filter(has_text=short(HOT))).to_contain_text("83.0 %")
    expect(page.locator(".refusals summary").first).to_contain_text("candidate")
    expect(page.get_by_text("The mode is recommend: nothing is executed.")).to_be_visible()
    page.get_by_role("button", name=re.compile("^Why .* moves$")).first.click()
    drawer = page.get_by_role("dialog", name="Why this move")
    expect(drawer).to_contain_text("Rule avg, threshold")
    expect(drawer.get_by_role("row").nth(1)).to_contain_text(f"from {HOT}")
    expect(drawer).to_contain_text("The bundle nowState in the last cycle, not in this plan.")
    expect(drawer.get_by_text("Asking the sidecar")).to_have_count(0)
    assert watched.cluster.model.owners == before


def test_what_if(watched: ServedSidecar, open_page: Open) -> None:
    """Without a broker, with less traffic, by another strategy; mistakes are named; none of it is ever carried out."""
    page = open_page(watched.url)
    view(page, "What if")
    expect(page.get_by_label("Strategy").get_by_role("option", name="threshold", exact=True)).to_have_count(1)
    page.get_by_label("broker-2.pulsar:8080").check()
    page.get_by_label("Factor for all traffic").fill("0.5")
    page.get_by_label("Skip the waiting period").check()
    page.get_by_role("button", name="Plan with these changes").click()
    pairs = page.get_by_role("list", name="Load of each broker before and after").get_by_role("listitem")
    expect(pairs).to_have_count(2)
    expect(pairs.filter(has_text=short(HOT))).to_contain_text(re.compile(r"4\d\.\d\s%"))
    expect(page.get_by_text("This is a what-if")).to_be_visible()
    expect(page.get_by_text("The most loaded broker is at")).not_to_contain_text(re.compile(r"\d%"))
    page.get_by_label("Strategy").select_option("threshold")
    page.get_by_role("button", name="Plan with these changes").click()
    expect(page.get_by_text("with strategy threshold")).to_be_visible()
    page.get_by_label("Other parameters").fill("avg_low_threshold_percent = many")
    page.get_by_role("button", name="Plan with these changes").click()
    expect(page.get_by_role("alert")).to_contain_text("avg_low_threshold_percent")


def test_what_if_there_were_more_brokers(watched: ServedSidecar, open_page: Open) -> None:
    """The new brokers are empty before and filled after. Such a plan is never executed. One broker is removed at the
    same time.
    """
    before = dict(watched.cluster.model.owners)
    page = open_page(watched.url)
    view(page, "What if")
    page.get_by_label("Brokers added").fill("2")
    page.get_by_label("broker-2.pulsar:8080").check()
    page.get_by_label("Skip the waiting period").check()
    page.get_by_role("button", name="Plan with these changes").click()
    pairs = page.get_by_role("list", name="Load of each broker before and after").get_by_role("listitem")
    expect(pairs).to_have_count(4)
    expect(page.get_by_text("When finished: the most loaded broker has")).to_contain_text(
        re.compile(r"\d+ moves in \d cycles")
    )
    for name in ("new-1", "new-2"):
        expect(pairs.filter(has_text=name)).to_have_count(1)
    moves = page.get_by_role("region", name="Moves").get_by_role("row")
    expect(moves.filter(has_text="new-1").first).to_be_visible()
    expect(page.get_by_text("This is a what-if")).to_be_visible()
    assert watched.cluster.model.owners == before


def test_an_operator_executes_and_watches(guarded: ServedSidecar, tokens: Tokens, open_page: Open) -> None:
    """Signed in, with a reason; progress is seen without a reload, bundles land where asked, and the journal has it."""
    page = open_page(guarded.url)
    expect(page.get_by_text("This sidecar asks for credentials.")).to_be_visible()
    before = dict(guarded.cluster.model.owners)
    sign_in(page, tokens, "operator")
    expect(page.locator("#verdict")).to_have_text(YET)
    ask_for_a_plan(page)
    rows = page.get_by_role("region", name="Moves").get_by_role("row").count() - 1
    page.get_by_label(f"Execute {rows} moves").fill("even it out before the sale")
    page.get_by_role("button", name="Execute this plan").click()
    task = page.get_by_role("main").locator(".task").first
    expect(task).to_contain_text(re.compile(r"Requested by the-operator at [\d:]{8} UTC: even it out before the sale"))
    expect(task).to_contain_text("running")
    expect(task.get_by_role("progressbar")).to_be_visible()
    expect(task).to_contain_text(f"{rows} of {rows} reached the requested broker", timeout=40_000)
    expect(task.get_by_role("heading")).to_contain_text("done")
    expect(page.locator("#verdict")).to_contain_text("Balanced")
    view(page, "Journal")
    page.get_by_label("Show").select_option("moves")
    expect(page.locator(".entry.move")).to_have_count(rows)
    moved = [name for name, owner in guarded.cluster.model.owners.items() if owner.broker_id != before[name].broker_id]
    assert len(moved) == rows


def test_an_operator_stops_a_task(guarded: ServedSidecar, tokens: Tokens, open_page: Open) -> None:
    """No further move is begun; the page says how far it went."""
    guarded.sidecar.admin.seconds = 2.0  # type: ignore[attr-defined]
    page = open_page(guarded.url)
    sign_in(page, tokens, "operator")
    ask_for_a_plan(page)
    page.get_by_label(re.compile("^Execute ")).fill("try")
    page.get_by_role("button", name="Execute this plan").click()
    task = page.get_by_role("main").locator(".task").first
    expect(task).to_contain_text("running")
    task.get_by_label("Stop: no further move starts").fill("not now")
    task.get_by_role("button", name="Stop this task").click()
    guarded.sidecar.admin.seconds = 0.0  # type: ignore[attr-defined]
    expect(task.get_by_role("heading")).to_contain_text("stopped", timeout=40_000)


# Requests of an operator besides plans: one bundle is unloaded, through the same API as on the command line.
UNLOAD = """async ([bundle, reason]) => {
    const headers = {"Content-Type": "application/json",
        Authorization: "Bearer " + sessionStorage.getItem("bundlekeel.token")};
    const body = JSON.stringify({execute: true, reason});
    const path = `/api/v1/bundles/${encodeURIComponent(bundle)}/unload`;
    return (await fetch(path, {method: "POST", headers, body})).status;
}"""


def test_proposals_and_what_became_of_them(tokens: Tokens, open_page: Open) -> None:
    """A second operator must approve: one proposal is discarded, one executed. Both stay visible, latest first."""
    with ServedSidecar(loads=LOADS, tokens=tokens, review=True) as served:
        first, second = open_page(served.url), open_page(served.url)
        sign_in(first, tokens, "operator")
        sign_in(second, tokens, "admin")
        view(second, "Executions")
        bundle = next(name for name in served.cluster.model.owners if name.startswith("telemetry"))
        assert first.evaluate(UNLOAD, [bundle, "too early"]) == 200
        decide(second, "too early", "Discard", "wait")
        ask_for_a_plan(first)
        first.get_by_label(re.compile("^Execute ")).fill("the sale begins")
        first.get_by_role("button", name="Execute this plan").click()
        decide(second, "the sale begins", "Approve", "go on")
        expect(second.get_by_role("main").locator(".task").first).to_contain_text(
            "reached the requested broker", timeout=40_000
        )
        second.get_by_text("2 earlier proposals").click()
        rows = second.locator(".decided").get_by_role("listitem")
        expect(rows.first).to_contain_text(
            re.compile(r"the sale begins\s*approved and executed \(the-admin at .*: go on\)")
        )
        expect(rows.last).to_contain_text(re.compile(r"too early\s*discarded \(the-admin at .*: wait\)"))


def decide(page: Page, proposal: str, answer: str, remark: str) -> None:
    """Approve or discard, as a second operator, the proposal with this reason, until it no longer waits."""
    card = page.get_by_role("main").locator(".task").filter(has_text=proposal)
    expect(card).to_contain_text("proposed by the-operator")
    card.get_by_label(answer, exact=True).fill(remark)
    card.get_by_role("button", name=answer, exact=True).click()
    expect(page.get_by_role("heading", name="Waiting for a second operator")).to_have_count(0)


def test_a_viewer_may_not(guarded: ServedSidecar, tokens: Tokens, open_page: Open) -> None:
    """There is no button, but the reason, and another user's newest plan. The API refuses direct requests, too. A wrong
    token is reported as wrong.
    """
    page = open_page(guarded.url)
    page.get_by_label("Token").fill("bk_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("This token is not valid, or has expired.")).to_be_visible()
    sign_in(page, tokens, "viewer")
    refusal = page.get_by_text("You are the-viewer with role viewer. Requesting a plan needs role operator.")
    view(page, "What if")
    expect(refusal).to_be_visible()
    expect(page.get_by_role("button", name="Plan with these changes")).to_have_count(0)
    view(page, "Plan")
    expect(refusal).to_be_visible()
    expect(page.get_by_role("button", name="Request a plan")).to_have_count(0)
    other = open_page(guarded.url)
    sign_in(other, tokens, "operator")
    ask_for_a_plan(other)
    page.get_by_role("button", name="Show the newest plan").click()
    page.get_by_role("region", name="Moves").wait_for()
    expect(
        page.get_by_text("You are the-viewer with role viewer. Executing a plan needs role operator.")
    ).to_be_visible()
    expect(page.get_by_role("button", name="Execute this plan")).to_have_count(0)
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    status = page.evaluate(
        """async () => {
            const headers = {"Content-Type": "application/json",
                Authorization: "Bearer " + sessionStorage.getItem("bundlekeel.token")};
            const asked = await fetch("/api/v1/plans", {method: "POST", headers, body: "{}"});
            const [made] = (await (await fetch("/api/v1/plans", {headers})).json()).slice(-1);
            const body = JSON.stringify({reason: "r"});
            const begun = await fetch(`/api/v1/plans/${made.hash}/execute`, {method: "POST", headers, body});
            return [asked.status, begun.status];
        }"""
    )
    assert status == [403, 403]
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""], "the token is kept for this tab only"
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("This sidecar asks for credentials.")).to_be_visible()


def test_pause_is_seen_by_everybody(guarded: ServedSidecar, tokens: Tokens, open_page: Open) -> None:
    """An operator pauses for a while: another page, already open, says by whom and until when; nothing is executed."""
    other = open_page(guarded.url)
    sign_in(other, tokens, "viewer")
    page = open_page(guarded.url)
    sign_in(page, tokens, "operator")
    page.get_by_role("button", name="Pause").click()
    drawer = page.get_by_role("dialog", name="Pause all moves")
    drawer.get_by_label("Reason").fill("release")
    drawer.get_by_label("Minutes").fill("15")
    drawer.get_by_role("button", name="Pause").click()
    drawer.get_by_role("button", name="Done").click()
    until = r"(\d+ \w+ )?\d\d:\d\d:\d\d UTC"  # with the day, if the pause ends after midnight
    sentence = re.compile(rf"Moves are paused by the-operator until {until} \(for another 1\d\smin\)\s*: release")
    expect(other.get_by_text(sentence)).to_be_visible()
    ask_for_a_plan(page)
    expect(page.get_by_text("Moves are paused. An operator must resume them first.")).to_be_visible()


def test_the_journal_says_what_mends_a_finding(watched: ServedSidecar, open_page: Open) -> None:
    """Among all entries, and among findings alone; commands in sentences look like commands."""
    sentence, remedy = "BrokersSplitThemselves: b1 splits by itself again", "run `bundlekeel doctor`, and hand back"
    watched.sidecar.journal.append(
        {"kind": "finding", "wall_ms": watched.sidecar.clock.wall_ms(), "sentence": sentence, "remedy": remedy}
    )
    page = open_page(watched.url)
    view(page, "Journal")
    for kind in ("everything, similar cycles in one line", "findings"):
        page.get_by_label("Show").select_option(kind)
        entry = page.locator(".entry.finding").first
        expect(entry).to_contain_text(sentence)
        expect(entry).to_contain_text("Remedy: run bundlekeel doctor, and hand back")
        expect(entry.locator("code")).to_have_text("bundlekeel doctor")


def test_changes_come_by_themselves(watched: ServedSidecar, open_page: Open) -> None:
    """One stream reports them; while nothing happens there are no repeated requests."""
    requests = list[str]()
    page = open_page(watched.url)
    page.on("request", lambda request: requests.append(request.url))
    first = page.locator(".facts").inner_text()
    expect(page.locator(".facts")).not_to_have_text(first, timeout=5000)
    if not requests:  # what changed was the answer to a question from before
        page.wait_for_event("request", timeout=20_000)
    time.sleep(0.5)
    assert requests and not any(url.endswith("/events") for url in requests), (
        "the stream that was opened at first goes on"
    )


def test_on_a_narrow_screen(watched: ServedSidecar, open_page: Open) -> None:
    """Nothing sticks out to the side."""
    page = open_page(watched.url, size=NARROW)
    expect(page.locator("#verdict")).to_have_text(VERDICT)
    for name in (*VIEWS[1:], VIEWS[0]):
        view(page, name)
        if name == "Plan":
            ask_for_a_plan(page)
        expect(page.get_by_text("Asking the sidecar")).to_have_count(0)
        assert sideways(page) == [], name
