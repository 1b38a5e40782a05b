"""Usable by everybody: no serious finding of axe in light and dark, and the whole main path by keyboard alone."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.page_world import ServedSidecar
from tests.ui.conftest import VIEWS, Open, findings, view


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(watched: ServedSidecar, open_page: Open, axe: str, scheme: str) -> None:
    """In every view, and with a drawer open."""
    page = open_page(watched.url, scheme=scheme)
    problems = list[str]()
    for name in VIEWS:
        view(page, name)
        if name == "Plan":
            page.get_by_role("button", name="Request a plan").click()
            page.get_by_role("region", name="Moves").wait_for()
        expect(page.get_by_role("main").get_by_text("Asking the sidecar")).to_have_count(0)
        problems += [f"{name}: {line}" for line in findings(page, axe)]
    page.get_by_role("button", name="Why").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("The bundle now")
    problems += [f"drawer: {line}" for line in findings(page, axe)]
    assert problems == []


def test_axe_sees_what_is_wrong(watched: ServedSidecar, open_page: Open, axe: str) -> None:
    """The check can fail: a picture without a text is found."""
    page = open_page(watched.url)
    page.get_by_role("heading", name="Cluster now").wait_for()
    page.evaluate("document.querySelector('main').append(document.createElement('input'))")
    assert any(line.startswith("label:") for line in findings(page, axe))


def test_by_keyboard_alone(watched: ServedSidecar, open_page: Open) -> None:
    """From the top of the page to the reason of a move and back, with the focus visible at every step."""
    page = open_page(watched.url)
    page.get_by_role("heading", name="Cluster now").wait_for()

    def tab_to(role: str, name: str) -> None:
        target = page.get_by_role(role, name=name).first
        for _ in range(60):
            page.keyboard.press("Tab")
            if target.evaluate("element => element === document.activeElement"):
                outline = target.evaluate("element => getComputedStyle(element).outlineStyle")
                assert outline != "none", f"nobody sees that {name} has the focus"
                return
        raise AssertionError(f"{name} cannot be reached with the keyboard")

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Cluster now")).to_be_focused()
    tab_to("button", "broker-0.pulsar:8080")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_contain_text("Its largest bundles")
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="broker-0.pulsar:8080")).to_be_focused()
    page.reload()
    tab_to("link", "Plan")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Plan")).to_be_focused()
    tab_to("button", "Request a plan")
    page.keyboard.press("Enter")
    page.get_by_role("region", name="Moves").wait_for()
    tab_to("button", "Why shop/orders/0x00000000_0x40000000 moves")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="Why this move")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Why shop/orders/0x00000000_0x40000000 moves")).to_be_focused()
