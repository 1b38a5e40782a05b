"""Quota groups on the page: what they pass of what they may, and why; operators set and remove them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.quotas.responses import QuotasView
from bundlekeel.views.picture import CodeView
from tests.support.page_world import ServedSidecar
from tests.support.security import Tokens
from tests.support.shop import Shop
from tests.support.spied import always
from tests.ui.conftest import LOADS, NARROW, Open, findings, sideways, sign_in, view
from tests.ui.served_shop import ServedShop

Json = dict[str, Any]
BUSY, SKEWED = "persistent://shop/orders/checkout", "persistent://shop/payments/cards"
# Messages/s that topics want to publish: more than twice what the tenant may; the devices have room.
DEMAND = {
    BUSY: 400.0,
    "persistent://shop/orders/refunds": 12.0,
    "persistent://shop/orders/stock": 90.0,
    "persistent://shop/payments/ledger": 60.0,
    **{f"{SKEWED}-partition-{number}": wanted for number, wanted in enumerate((160.0, 4.0, 4.0, 4.0))},
    "persistent://telemetry/devices/readings": 70.0,
    "persistent://telemetry/devices/alarms": 3.0,
    "persistent://market/offers/bids": 30.0,
}
# Cycles that tell the same, one after the other: then shares do not change any more.
STEADY = 4
SHOP, DEVICES, MARKET = "shop", "devices", "market"
# One tenant more, that is in no group.
WITH_MARKET = LOADS | {"broker-2.pulsar:8080": [*LOADS["broker-2.pulsar:8080"], ("market/offers", 0.01)]}
GROUPS: Json = {
    SHOP: {"members": ("t:shop",), "publish_messages": 300, "dispatch_messages": 2000},
    DEVICES: {"members": ("n:telemetry/devices",), "publish_bytes": "200kB"},
}
LIMITED = {"enforcer": "policies", "groups": GROUPS}


@pytest.fixture(scope="module")
def limited() -> Iterator[ServedSidecar]:
    """Two groups, enforced; everybody may read."""
    with ServedSidecar(loads=WITH_MARKET, demand=DEMAND, quotas=LIMITED) as served:
        yield served


@pytest.fixture
def guarded(tokens: Tokens) -> Iterator[ServedSidecar]:
    """The page with credentials."""
    with ServedSidecar(loads=WITH_MARKET, demand=DEMAND, quotas=LIMITED, tokens=tokens) as served:
        yield served


def api(served: ServedSidecar, path: str) -> Json:
    """Return the API's response."""
    headers = {"Authorization": f"Bearer {served.tokens.tokens['viewer']}"} if served.tokens else {}
    answer = httpx.get(f"{served.url}/api/v1/{path}", headers=headers)
    answer.raise_for_status()
    document: Json = answer.json()
    return document


def settled(served: ServedSidecar) -> Json:
    """Return the groups by name, once rates are held and several cycles have reported the same."""
    deadline, samples, same = time.monotonic() + 120, dict[int, Any](), 0
    while same < STEADY:
        assert time.monotonic() < deadline, samples
        time.sleep(0.3)
        document = api(served, "quotas")
        if document["wall_ms"] in samples or not document["writes"]["held"]:
            continue
        figures = [{key: row[key] for key in ("usage", "shares", "held_back")} for row in document["groups"]]
        same = same + 1 if figures == next(reversed(samples.values()), None) else 0
        samples[document["wall_ms"]] = figures
    return {row["name"]: row for row in document["groups"]}


def card(page: Page, group: str) -> Locator:
    """A group's part of the page."""
    return page.get_by_role("listitem", name=group, exact=True)


def topics(page: Page, group: str) -> Locator:
    """Open a group and return its busiest topics."""
    card(page, group).get_by_text("Busiest topics").click()
    return page.get_by_role("region", name=f"Busiest topics of {group}")


def test_no_groups(watched: ServedSidecar, open_page: Open) -> None:
    """The page says that there are none and how to declare one. Without credentials nothing can be changed here."""
    page = open_page(watched.url)
    view(page, "Quotas")
    main = page.get_by_role("main")
    expect(main).to_contain_text("There are no quota groups.")
    expect(main.locator("code")).to_contain_text(
        "bundlekeel quota set acme --member t:acme --limit publish_messages=500"
    )
    expect(main).to_contain_text("This page is read-only: sign in with an operator's token")
    expect(main.get_by_role("button")).to_have_count(0)


def test_figures_agree_with_the_api(limited: ServedSidecar, open_page: Open) -> None:
    """Limit, usage, shares, ratio, who is held back; bars as long as their figures; the line where the limit is."""
    groups = settled(limited)
    page = open_page(limited.url)
    view(page, "Quotas")
    expect(page.locator("main .facts")).to_contain_text("policies: rates of each topic")
    expect(page.locator("main .facts")).to_contain_text("act: limits are enforced")
    shop = groups[SHOP]
    lines = page.get_by_role("list", name=f"Limits of {SHOP}").get_by_role("listitem")
    expect(lines).to_have_count(2)
    for row, kind in enumerate(("publish_messages", "dispatch_messages")):
        used, share = shop["usage"][kind], shop["shares"][kind]
        expect(lines.nth(row)).to_contain_text(f"{100 * shop['used_ratio'][kind]:.1f} %")
        expect(lines.nth(row)).to_contain_text(f"{used:,.0f} msg/s of {shop['limits'][kind]:,.0f} msg/s")
        expect(lines.nth(row)).to_contain_text(f"shares add up to {share:,.0f} msg/s")
        track, bar = (lines.nth(row).locator(name).bounding_box() for name in (".track", ".bar"))
        limit = lines.nth(row).locator(".line:not(.mean)").bounding_box()
        assert bar["width"] / (limit["x"] - track["x"]) == pytest.approx(used / shop["limits"][kind], abs=0.01)
    assert 0 < shop["held_back"] < shop["topics"]
    expect(card(page, SHOP)).to_contain_text(
        f"{shop['topics']} topics of 2 namespaces; {shop['held_back']} held back now"
    )
    expect(card(page, SHOP)).to_contain_text("Throttled for")
    expect(card(page, SHOP)).to_contain_text("Members t:shop. Set in the settings file.")
    expect(card(page, SHOP)).to_contain_text("Not limited: published bytes")
    expect(card(page, DEVICES)).to_contain_text("none held back now")
    expect(card(page, DEVICES)).to_contain_text("73.0 kB/s of 200 kB/s")


def test_topics_and_why(limited: ServedSidecar, open_page: Open) -> None:
    """Each with usage, demand, share, loss and the rate in force; why, from its row or by name, in the API's words."""
    settled(limited)
    rows = {row["topic"]: row for row in api(limited, f"quotas/{SHOP}")["rows"]}
    page = open_page(limited.url)
    view(page, "Quotas")
    table = topics(page, SHOP)
    expect(table.locator("tbody")).to_have_count(len(rows))
    for name in (BUSY, SKEWED):
        detail = table.locator("tbody").filter(has=page.get_by_role("button", name=f"Why {name}", exact=True))
        row = detail.get_by_role("row").first
        for value in (rows[name][key]["publish_messages"] for key in ("usage", "demand", "share", "partition_rate")):
            expect(row).to_contain_text(f"{value:,.0f} msg/s")
        expect(row).to_contain_text("yes")
    expect(table.locator("tbody").filter(has_text="payments/cards")).to_contain_text("4 partitions")
    lost = rows[SKEWED]["loss"]["publish_messages"]
    assert lost > rows[BUSY]["loss"]["publish_messages"] == 0
    expect(table.locator("tbody").filter(has_text="payments/cards")).to_contain_text(f"{lost:,.0f} msg/s")
    expect(table.locator("tbody").filter(has_text="orders/checkout").get_by_role("row").first).to_contain_text("none")
    drawer = page.get_by_role("dialog", name="Why this rate")
    table.get_by_role("button", name=f"Why {BUSY}").click()
    sentences = api(limited, f"quotas/{quote(BUSY, safe='')}/why")["sentences"]
    expect(drawer.get_by_role("listitem")).to_have_count(len(sentences))
    expect(drawer).to_contain_text(f"In quota group {SHOP}.")
    expect(drawer).to_contain_text("held back")
    page.keyboard.press("Escape")
    page.get_by_label("Why does a topic get its rate?").fill(SKEWED)
    page.keyboard.press("Enter")
    expect(drawer).to_contain_text("messages/s published in 4 partitions")
    page.keyboard.press("Escape")
    page.get_by_label("Why does a topic get its rate?").fill("persistent://shop/orders/nowhere")
    page.get_by_role("button", name="Explain").click()
    expect(drawer.get_by_role("alert")).to_contain_text("no broker reported persistent://shop/orders/nowhere")


LATE_CLOSE = """document.addEventListener("close", (event) => {
    if (event.detail === "late") return;
    event.stopImmediatePropagation();
    setTimeout(() => event.target.dispatchEvent(new CustomEvent("close", { detail: "late" })), 400);
}, true)"""


def test_a_late_close_takes_nothing_away(limited: ServedSidecar, open_page: Open) -> None:
    """Browsers tell that a dialog was closed later, even after the next keys: they go where the person is by then."""
    page = open_page(limited.url)
    view(page, "Quotas")
    page.evaluate(LATE_CLOSE)
    field = page.get_by_label("Why does a topic get its rate?")
    drawer = page.get_by_role("dialog", name="Why this rate")
    topics(page, SHOP).get_by_role("button", name=f"Why {BUSY}").click()
    expect(drawer).to_contain_text(BUSY)
    page.keyboard.press("Escape")
    field.fill(SKEWED)
    page.keyboard.press("Enter")
    expect(drawer).to_contain_text(SKEWED)
    page.wait_for_timeout(600)
    expect(drawer).to_contain_text(SKEWED)


def with_problems(view: QuotasView) -> QuotasView:
    """Return the view with a mistake, rates that are not written, and a defect of the group."""
    code, defect = Code.TOPIC_POLICIES_OFF, Code.DISPATCH_NOT_ENFORCED
    (group,) = view.groups
    row = CodeView(code=defect.value, detail="900 messages/s", explanation=EXPLANATIONS[defect])
    return replace(
        view,
        problems=["quotas.groups.acme.members = 't:nobody': unknown tenant"],
        left={code.value: 2},
        explanations=dict(view.explanations) | {code.value: EXPLANATIONS[code]},
        groups=[replace(group, held_back=12, held_back_seconds=840.0, defects=[row])],
    )


def test_what_is_wrong_is_explained(open_page: Open) -> None:
    """Problems, defects and remaining rates, each code in words; before the leader's first cycle, a message."""
    with ServedShop() as served:

        async def before_first_cycle(_: Shop) -> None:
            other = Shop()
            await other.lead()
            served.spied.results["quotas.view"] = always(await other.service.features["quotas"].view())

        served.spied.results["quotas.view"] = with_problems
        page = open_page(served.url)
        view(page, "Quotas")
        expect(page.get_by_role("main").get_by_role("alert")).to_contain_text("'t:nobody': unknown tenant")
        notices = page.get_by_role("main").locator(".notice.warn")
        left, defect = EXPLANATIONS[Code.TOPIC_POLICIES_OFF], EXPLANATIONS[Code.DISPATCH_NOT_ENFORCED]
        expect(notices.filter(has_text="topic policies off")).to_contain_text("2 rates of topics not written")
        expect(notices.filter(has_text="topic policies off")).to_contain_text(left[4:])
        expect(notices.filter(has_text="dispatch not enforced")).to_contain_text(defect)
        expect(card(page, "acme")).to_contain_text("Throttled for 840 topic-seconds")
        served.act(before_first_cycle)
        served.change()
        expect(card(page, "acme")).to_contain_text("The leader has not measured this group yet.")
        expect(card(page, "acme")).to_contain_text("not measured yet of 500 msg/s")


def test_an_operator_removes(guarded: ServedSidecar, tokens: Tokens, open_page: Open) -> None:
    """It needs a yes and a reason; the page follows without a reload, and the journal has it."""
    page = open_page(guarded.url)
    sign_in(page, tokens, "operator")
    view(page, "Quotas")
    card(page, DEVICES).get_by_role("button", name=f"Remove {DEVICES}").click()
    drawer = page.get_by_role("dialog", name=f"Remove group {DEVICES}")
    drawer.get_by_label("Reason").fill("contract ended")
    expect(drawer.get_by_role("button", name="Remove this group")).to_be_disabled()
    drawer.get_by_label("End the limits of").check()
    drawer.get_by_role("button", name="Remove this group").click()
    expect(page.get_by_text(f"Group {DEVICES} is removed.")).to_be_visible()
    expect(card(page, DEVICES)).to_have_count(0)
    assert [row["name"] for row in api(guarded, "quotas")["groups"]] == [SHOP]
    request = api(guarded, "journal?kind=request")[-1]
    assert (request["what"], request["by"], request["reason"]) == (
        "removal of quota group devices",
        "the-operator",
        "contract ended",
    )


def test_an_operator_sets_and_changes(guarded: ServedSidecar, tokens: Tokens, open_page: Open) -> None:
    """Mistakes are named and nothing is set; a group that is there is changed as a whole."""
    page = open_page(guarded.url)
    sign_in(page, tokens, "operator")
    view(page, "Quotas")
    page.get_by_role("button", name="Set a new group").click()
    drawer = page.get_by_role("dialog", name="Set a quota group")
    drawer.get_by_label("Name", exact=True).fill("market")
    drawer.get_by_label("Members").fill("t:nobody")
    drawer.get_by_label("Published bytes").fill("10 parsecs")
    drawer.get_by_label("Reason").fill("noisy")
    drawer.get_by_role("button", name="Set this group").click()
    expect(drawer.get_by_role("alert")).to_contain_text("Published bytes: “10 parsecs” is not a number of bytes")
    drawer.get_by_label("Published bytes").fill("1.5MB")
    drawer.get_by_role("button", name="Set this group").click()
    expect(drawer.get_by_role("alert")).to_contain_text("unknown tenant")
    drawer.get_by_label("Members").fill("n:telemetry/*")
    drawer.get_by_role("button", name="Set this group").click()
    expect(drawer.get_by_role("alert")).to_contain_text(DEVICES)
    drawer.get_by_label("Members").fill("t:market")
    drawer.get_by_role("button", name="Set this group").click()
    expect(page.get_by_text("Group market is set.")).to_be_visible()
    expect(card(page, MARKET)).to_contain_text("Set by the-operator at")
    expect(card(page, MARKET)).to_contain_text("30.0 kB/s of 1.5 MB/s", timeout=40_000)

    card(page, MARKET).get_by_role("button", name="Change the limits of market").click()
    drawer = page.get_by_role("dialog", name="Change group market")
    expect(drawer.get_by_label("Members")).to_have_value("t:market")
    expect(drawer.get_by_label("Published bytes")).to_have_value("1500kB")
    drawer.get_by_label("Published messages").fill("40")
    drawer.get_by_label("Reason").fill("less noise")
    drawer.get_by_role("button", name="Set this group").click()
    expect(card(page, MARKET)).to_contain_text("30 msg/s of 40 msg/s", timeout=40_000)
    row = next(row for row in api(guarded, "quotas")["groups"] if row["name"] == MARKET)
    limits = {kind: value for kind, value in row["limits"].items() if value is not None}
    assert limits == {"publish_messages": 40, "publish_bytes": 1_500_000}
    assert (row["by"], row["reason"], row["members"]) == ("the-operator", "less noise", ["t:market"])


def test_a_viewer_may_not(guarded: ServedSidecar, tokens: Tokens, open_page: Open) -> None:
    """Everything to be seen, no button that changes anything, and why; past the page the API refuses too."""
    page = open_page(guarded.url)
    sign_in(page, tokens, "viewer")
    view(page, "Quotas")
    expect(card(page, SHOP)).to_be_visible()
    expect(page.get_by_text("role viewer. Setting or removing a group needs role operator.")).to_be_visible()
    expect(page.get_by_role("main").get_by_role("button")).to_have_text(["Why", "Why", "Explain"])
    status = page.evaluate(
        """async () => (await fetch('/api/v1/quotas/shop', {method: 'DELETE', body: '{"reason": "x"}',
            headers: {'Content-Type': 'application/json',
                      Authorization: 'Bearer ' + sessionStorage.getItem('bundlekeel.token')}})).status"""
    )
    assert status == 403 and len(api(guarded, "quotas")["groups"]) == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    guarded: ServedSidecar, tokens: Tokens, open_page: Open, axe: str, scheme: str
) -> None:
    """With topics opened, and in each drawer."""
    page = open_page(guarded.url, scheme=scheme)
    sign_in(page, tokens, "operator")
    view(page, "Quotas")
    topics(page, SHOP).get_by_role("table").wait_for()
    problems = findings(page, axe)
    for name in (f"Why {BUSY}", f"Change the limits of {SHOP}", f"Remove {SHOP}", "Set a new group"):
        page.get_by_role("button", name=name).click()
        expect(page.get_by_role("dialog").get_by_text("Asking the sidecar")).to_have_count(0)
        problems += [f"{name}: {line}" for line in findings(page, axe)]
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name=name)).to_be_focused()
    assert problems == []


def test_on_a_narrow_screen(limited: ServedSidecar, open_page: Open, axe: str) -> None:
    """Nothing sticks out to the side, with everything open."""
    page = open_page(limited.url, size=NARROW)
    view(page, "Quotas")
    topics(page, SHOP).get_by_role("table").wait_for()
    assert sideways(page) == []
    assert findings(page, axe) == []
