"""Chromium, pages that must not complain, and the sidecars they look at."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from dev.tools_chromium import ensure
from dev.ui import UI, install
from tests.support.page_world import Served, ServedSidecar
from tests.support.security import Tokens
from tests.support.world import EAGER

WIDE = {"width": 1120, "height": 760}
NARROW = {"width": 390, "height": 844}
SERIOUS = ("serious", "critical")
# By the words of their tabs; the first one is shown first.
VIEWS = (
    "Cluster now",
    "What if",
    "Journal",
    "Executions",
    "Channel",
    "Quotas",
    "Thresholds",
    "Settings",
    "Doctor",
    "API",
    "Plan",
)
HOT = "broker-0.pulsar:8080"
# One broker with nearly everything, in three namespaces and many small bundles; two with next to nothing.
LOADS = {
    HOT: [
        *(("shop/orders", share) for share in (0.2, 0.15, 0.08)),
        *(("shop/payments", share) for share in (0.12, 0.06)),
        ("telemetry/devices", 0.1),
        *(("telemetry/devices", 0.004) for _ in range(30)),
    ],
    "broker-1.pulsar:8080": [("shop/payments", 0.1), ("telemetry/devices", 0.05)],
    "broker-2.pulsar:8080": [("telemetry/devices", 0.04)],
}

# On a machine that does other things first.
PATIENCE_MS = 40_000
expect.set_options(timeout=PATIENCE_MS)

Open = Callable[..., Page]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One for all tests."""
    path = ensure()
    with sync_playwright() as playwright:
        # Without a sandbox, because tests run as root here; the page is ours.
        instance = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield instance
        instance.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens pages with nothing kept from others. One that breaks its content policy, or breaks unexpectedly, fails the
    test."""
    contexts, faults = [], list[str]()

    def open_(url: str, *, size: dict[str, int] = WIDE, scheme: str = "light", may_break: bool = False) -> Page:
        context = browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        if not may_break:
            page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda line: faults.append(line.text) if "Content Security Policy" in line.text else None)
        page.goto(f"{url}/")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture(scope="session")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    """One a role."""
    return Tokens(tmp_path_factory.mktemp("tokens"))


@pytest.fixture(scope="module")
def watched() -> Iterator[ServedSidecar]:
    """A sidecar in mode recommend. Every user may read, none may change anything."""
    with ServedSidecar(loads=LOADS, mode="recommend", params=EAGER) as served:
        yield served


@pytest.fixture(scope="session")
def axe() -> str:
    """axe-core, of the page's own npm packages."""
    install()
    return Path(UI / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


def findings(page: Page, axe: str) -> list[str]:
    """Return axe's serious and critical findings, with their places."""
    # Evaluated by the debugger: the page's own policy would not let a foreign script in.
    page.evaluate(axe)
    results = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert results["passes"], "axe looked at nothing"
    return [
        f"{rule['id']}: {node['html']} {node.get('failureSummary', '')}"
        for rule in results["violations"]
        if rule["impact"] in SERIOUS
        for node in rule["nodes"]
    ]


def sideways(page: Page) -> list[str]:
    """Return the elements that scroll sideways: the page itself, or a table in it."""
    wide = "[...document.querySelectorAll('html, .scroll')].filter(box => box.scrollWidth > box.clientWidth)"
    boxes: list[str] = page.evaluate(f"{wide}.map(box => box.ariaLabel ?? 'page')")
    return boxes


def sign_in(page: Page, tokens: Tokens, role: str) -> None:
    page.get_by_label("Token").fill(tokens.tokens[role])
    page.get_by_role("button", name="Sign in").click()
    # On a phone it is there and not shown.
    page.get_by_text(f"the-{role} ({role})").wait_for(state="attached")


def short(broker: str) -> str:
    """Return the name in bars and headline if all brokers' names have the same end."""
    return broker.partition(".")[0]


def view(page: Page, name: str) -> None:
    """Go to a view by its link."""
    page.get_by_role("navigation").get_by_role("link", name=name, exact=True).click()
    page.get_by_role("heading", name=name, level=1).wait_for()


def ask_for_a_plan(page: Page) -> None:
    """At first sight, since nothing waits in a test; a new one where there is one already."""
    view(page, "Plan")
    page.get_by_label("Skip the waiting period").check()
    page.get_by_role("button", name=re.compile("^Request a (new )?plan$")).click()
    page.get_by_role("region", name="Moves").wait_for()


__all__ = [
    "HOT",
    "LOADS",
    "NARROW",
    "VIEWS",
    "WIDE",
    "Open",
    "Served",
    "ask_for_a_plan",
    "findings",
    "short",
    "sideways",
    "sign_in",
    "view",
]
