"""Panels have addresses, and whatever has a name is found by it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.page_world import ServedSidecar
from tests.ui.conftest import HOT, NARROW, VIEWS, Open, ask_for_a_plan, findings, short, view

FIELD = "Bundle, topic, namespace or broker"
ORDERS = "shop/orders/0x00000000_0x40000000"


def find(page: Page, name: str) -> None:
    """Search as a user does, when no panel is open."""
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_label(FIELD).fill(name)
    page.get_by_role("button", name="Find").click()


def test_a_bundle_is_found(watched: ServedSidecar, open_page: Open, axe: str) -> None:
    """The page shows the owner and the reason, with links to its broker and back."""
    page = open_page(watched.url)
    find(page, ORDERS)
    panel = page.get_by_role("dialog", name=ORDERS)
    expect(panel).to_contain_text(f"owned by {HOT}.")
    expect(panel.get_by_role("heading", name="What would change it")).to_be_visible()
    assert findings(page, axe) == []
    panel.get_by_role("link", name=HOT).click()
    expect(page.get_by_role("dialog", name=f"Broker {HOT}")).to_contain_text("Its largest bundles")
    page.keyboard.press("Escape")
    expect(panel).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Find")).to_be_focused()


def test_a_topic_and_a_namespace_are_found(watched: ServedSidecar, open_page: Open) -> None:
    """A topic leads to its bundle, a namespace to links of its bundles, a broker's name to the broker. An unknown name
    gets a message.
    """
    page = open_page(watched.url)
    find(page, "persistent://shop/orders/created")
    panel = page.get_by_role("dialog", name="persistent://shop/orders/created")
    expect(panel).to_contain_text(re.compile(r"In the bundle shop/orders/0x\w+, owned by broker-"))
    expect(panel.get_by_role("heading", name="What would change it")).to_be_visible()
    page.keyboard.press("Escape")
    find(page, "shop/orders")
    # Exactly: the panel of a bundle has the namespace in its name, and Escape is pressed once that one is gone.
    panel = page.get_by_role("dialog", name="shop/orders", exact=True)
    expect(panel.get_by_role("row")).to_have_count(5)
    panel.get_by_role("link", name=ORDERS).click()
    expect(page.get_by_role("dialog", name=ORDERS)).to_contain_text("owned by")
    page.keyboard.press("Escape")
    expect(panel).to_be_visible()
    page.keyboard.press("Escape")
    find(page, HOT)
    expect(page.get_by_role("dialog", name=f"Broker {HOT}")).to_be_visible()
    page.keyboard.press("Escape")
    find(page, "shop/nothing")
    expect(page.get_by_role("dialog", name="shop/nothing").get_by_role("alert")).to_contain_text("shop/nothing")


def test_a_panel_has_an_address(watched: ServedSidecar, open_page: Open) -> None:
    """A colleague who is sent it sees the same panel; closed, it shows the view below."""
    page = open_page(watched.url)
    page.get_by_role("button", name=HOT).click()
    expect(page.get_by_role("dialog", name=f"Broker {HOT}")).to_be_visible()
    other = open_page(watched.url)
    other.goto(page.url)
    panel = other.get_by_role("dialog", name=f"Broker {HOT}")
    expect(panel).to_contain_text("Its largest bundles")
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_have_count(0)
    expect(other).to_have_url(re.compile(r"/ui/#/$"))


def test_back_closes_a_panel(watched: ServedSidecar, open_page: Open) -> None:
    """It leaves neither the view nor the page, and the plan stays on the screen."""
    page = open_page(watched.url)
    ask_for_a_plan(page)
    page.get_by_role("button", name=f"Why {ORDERS} moves").click()
    expect(page.get_by_role("dialog", name="Why this move")).to_contain_text(f"owned by {HOT}.")
    page.go_back()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("region", name="Moves")).to_be_visible()
    page.go_forward()
    expect(page.get_by_role("dialog", name="Why this move")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.go_back()
    expect(page.get_by_role("heading", name=VIEWS[0], level=1)).to_be_visible()


def test_the_nearest_names_are_offered(watched: ServedSidecar, open_page: Open, axe: str) -> None:
    """For a mistyped broker or bundle, found or in an address; a broker's name as the bars have it is one."""
    page = open_page(watched.url)
    find(page, short(HOT))
    expect(page.get_by_role("dialog", name=f"Broker {HOT}")).to_be_visible()
    page.keyboard.press("Escape")
    find(page, "broker-0.pulsar:8081")
    panel = page.get_by_role("dialog", name="broker-0.pulsar:8081")
    expect(panel.get_by_role("alert")).to_contain_text("no broker 'broker-0.pulsar:8081'; nearest: broker-")
    assert findings(page, axe) == []
    panel.get_by_role("link", name=HOT).click()
    expect(page.get_by_role("dialog", name=f"Broker {HOT}")).to_contain_text("Its largest bundles")
    page.evaluate("location.hash = '#/cluster?broker=broker-0.pulsar:8081'")
    page.get_by_role("dialog", name="Broker broker-0.pulsar:8081").get_by_role("link", name=HOT).click()
    expect(page.get_by_role("dialog", name=f"Broker {HOT}")).to_be_visible()
    page.evaluate("location.hash = '#/cluster?name=shop/orders/0x00000000_0x50000000'")
    panel = page.get_by_role("dialog", name="shop/orders/0x00000000_0x50000000")
    expect(panel.get_by_role("alert")).to_contain_text("is not a bundle of the cluster now; nearest: ")
    panel.get_by_role("link", name=ORDERS).click()
    expect(page.get_by_role("dialog", name=ORDERS)).to_contain_text(f"owned by {HOT}.")


@pytest.mark.parametrize("lookup", [f"name={HOT}", f"name={short(HOT)}", f"broker={short(HOT)}"])
def test_an_address_may_name_a_broker(watched: ServedSidecar, open_page: Open, lookup: str) -> None:
    """The name of the broker in the bars, and the parameter `name` as for bundles."""
    page = open_page(watched.url)
    page.goto(f"{watched.url}/ui/#/cluster?{lookup}")
    expect(page.get_by_role("dialog", name=f"Broker {HOT}")).to_contain_text("Its largest bundles")


def test_a_view_that_there_is_not(watched: ServedSidecar, open_page: Open) -> None:
    """Is named with links to those there are; none is marked as shown."""
    page = open_page(watched.url)
    page.get_by_role("heading", name=VIEWS[0], level=1).wait_for()
    page.evaluate("location.hash = '#/nonsense'")
    expect(page.get_by_role("heading", name="No such view", level=1)).to_be_focused()
    main = page.get_by_role("main")
    expect(main.get_by_role("alert")).to_contain_text("This page has no view “nonsense”.")
    expect(page.locator("nav [aria-current]")).to_have_count(0)
    expect(main.get_by_role("link")).to_have_count(len(VIEWS))
    main.get_by_role("link", name="Doctor").click()
    expect(page.get_by_role("heading", name="Doctor", level=1)).to_be_visible()


def test_the_field_fits_a_phone(watched: ServedSidecar, open_page: Open) -> None:
    """Nothing sticks out to the side, and the panel of a namespace neither."""
    page = open_page(watched.url, size=NARROW | {"width": 360})
    view(page, "Doctor")
    page.get_by_role("button", name="More").click()
    find(page, "shop/orders")
    expect(page.get_by_role("dialog", name="shop/orders").get_by_role("link", name=ORDERS)).to_be_visible()
    sideways = "[document.documentElement, document.querySelector('dialog')].map(e => e.scrollWidth - e.clientWidth)"
    assert max(page.evaluate(sideways)) <= 0
