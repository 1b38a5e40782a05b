"""A large cluster is on the screen within a second."""

from __future__ import annotations

import random
import sys
import time

import pytest
from playwright.sync_api import Page, expect

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
    while None in (found := page.evaluate(marks)):
        assert time.monotonic() < deadline, "nothing was drawn"
        time.sleep(0.05)
    return tuple(found)


def test_a_hundred_brokers_and_ten_thousand_bundles(open_page: Open, capsys: pytest.CaptureFixture[str]) -> None:
    """The page with all its bars, the quickest of a few times: the machine may be busy with other things meanwhile."""
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
        times = []
        for _ in range(TRIES):
            page = open_page(served.url)
            times.append(painted(page))
            bars = page.get_by_role("list", name="Brokers, busiest first").get_by_role("listitem")
            expect(bars).to_have_count(BROKERS)
            page.close()
    said = ", ".join(f"{first:.0f} / {drawn:.0f}" for first, drawn in times)
    with capsys.disabled():
        sys.stdout.write(f"\nfirst paint / all bars drawn, ms: {said}\n")
    assert min(drawn for _, drawn in times) < LIMIT_MS
    assert min(first for first, _ in times) < LIMIT_MS
