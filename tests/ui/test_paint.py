"""A large cluster is on the screen within a second."""

from __future__ import annotations

import random
import sys
import time

import pytest
from playwright.sync_api import CDPSession, Page, expect

from tests.support.page_world import ServedSidecar
from tests.ui.conftest import Open

BROKERS, BUNDLES = 100, 10_000
LIMIT_MS = 1000
TRIES = 5


def painted(page: Page) -> tuple[float, float]:
    """First contentful paint, and when all bars were drawn; milliseconds since the page was asked for."""
    marks = (
        "['first-contentful-paint', 'bundlekeel-drawn'].map(name => performance.getEntriesByName(name)[0]?.startTime)"
    )
    deadline = time.monotonic() + 30
    # The page's policy lets no condition be evaluated inside it: it is asked from here.
    while None in (colors := page.evaluate(marks)):
        assert time.monotonic() < deadline, "nothing was drawn"
        time.sleep(0.05)
    return tuple(colors)


def test_a_hundred_brokers_and_ten_thousand_bundles(open_page: Open, capsys: pytest.CaptureFixture[str]) -> None:
    """The first paint, the quickest of a few: the machine may be busy with other things meanwhile. All the work of the
    page until its bars are drawn is counted by what it costs the processor, which does not depend on that."""
    rng = random.Random(7)
    each = BUNDLES // BROKERS
    loads = {
        f"broker-{number:03}.pulsar:8080": [
            (f"tenant-{rng.randrange(12)}/ns", 0.5 / each * rng.paretovariate(2)) for _ in range(each)
        ]
        for number in range(BROKERS)
    }
    # As often as a real sidecar has cycles.
    with ServedSidecar(loads=loads, mode="recommend", every_seconds=10.0) as served:
        context = open_page(served.url).context
        times = []
        for _ in range(TRIES):
            page = context.new_page()
            debugger = context.new_cdp_session(page)
            debugger.send("Performance.enable", {"timeDomain": "threadTicks"})
            page.goto(f"{served.url}/ui/")
            times.append((*painted(page), busy_ms(debugger)))
            bars = page.get_by_role("list", name="Brokers, most loaded first").get_by_role("listitem")
            expect(bars).to_have_count(BROKERS)
            page.get_by_label("Show brokers with").fill("-04")
            expect(page.get_by_text(f"10 of {BROKERS} brokers")).to_be_visible()
            expect(bars).to_have_count(10)
            page.close()
    summary = ", ".join(f"{first:.0f} / {drawn:.0f} / {cost:.0f}" for first, drawn, cost in times)
    with capsys.disabled():
        sys.stdout.write(f"\nfirst paint / all bars drawn / processor time of the page, ms: {summary}\n")
    assert min(first for first, _, _ in times) < LIMIT_MS
    assert 0 < min(cost for _, _, cost in times) < LIMIT_MS


def busy_ms(debugger: CDPSession) -> float:
    """Return the processor time of the page's main thread."""
    rows = debugger.send("Performance.getMetrics")["metrics"]
    return 1000 * next(row["value"] for row in rows if row["name"] == "TaskDuration")
