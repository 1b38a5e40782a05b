"""The pictures of the documentation: ten brokers and four tenants, in the situations of the documents.

`python -m dev.ui screenshots` saves them. The test itself checks whether each shows what its caption describes.
"""

from __future__ import annotations

import base64
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from bundlekeel.model.parameters import Parameters
from bundlekeel.settings.model import ApiSettings
from tests.support.page_shop import NAMES, NAMESPACES, ten_brokers
from tests.support.page_world import PacedAdmin, ServedSidecar
from tests.support.security import Tokens
from tests.ui.conftest import WIDE, Open, ask_for_a_plan, short, sign_in

TALL = {"width": 1120, "height": 820}
# Moves of the plan that have ended in its picture.
UNDER_WAY = 3
# Silence counts as a reading every five seconds, and on a slow machine the pictures take minutes: none acts by itself.
UNHURRIED = Parameters(move_price=2000)
LARGEST_BYTES = 130_000
QUALITY = 60
HOT, CALM, DRAINED, CORDONED = NAMES[0], NAMES[7], NAMES[8], NAMES[6]
Shoot = Callable[[Page, str], None]
# Where they are kept.
PICTURES = os.environ.get("UI_PICTURES")


@pytest.fixture
def shoot() -> Shoot:
    """Keeps a picture where `python -m dev.ui screenshots` says so; none may be large."""

    def keep(page: Page, name: str) -> None:
        page.mouse.move(0, 0)
        page.wait_for_timeout(300)
        debugger = page.context.new_cdp_session(page)
        image = debugger.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
        picture = base64.b64decode(image["data"])
        assert len(picture) <= LARGEST_BYTES, (name, len(picture))
        if PICTURES is not None:
            Path(PICTURES, f"{name}.webp").write_bytes(picture)

    return keep


def change(served: ServedSidecar, method: str, path: str, **body: object) -> None:
    """Send a request as an operator on the command line."""
    assert served.tokens is not None
    headers = served.tokens.headers("operator")
    answer = httpx.request(
        method, f"{served.url}/api/v1/{path}", json={"reason": "rack 3 gets new disks", **body}, headers=headers
    )
    answer.raise_for_status()


def test_pictures(tokens: Tokens, open_page: Open, shoot: Shoot) -> None:
    """From an imbalance to an executed plan; requests for brokers."""
    # Readers copy addresses from pictures. Where none is kept, nothing else may be in the way.
    port = ApiSettings().port if PICTURES else 0
    with ten_brokers(tokens, UNHURRIED, port) as served:
        # Fresh reports only when something moved.
        served.cluster.still = True
        pinned = next(name for name, owner in served.cluster.model.owners.items() if owner.broker_id == DRAINED)
        change(served, "PUT", f"pins/{pinned}", seconds=7 * 86400)
        change(served, "POST", f"brokers/{DRAINED}/drain", execute=True)
        change(served, "POST", f"brokers/{CORDONED}/cordon")
        served.cluster.metadata.topic_names |= {
            f"persistent://{name}/topic-{n}" for name in NAMESPACES for n in range(200)
        }
        page = open_page(served.url, size=TALL)
        sign_in(page, tokens, "operator")
        bars = page.get_by_role("list", name="Brokers, most loaded first").get_by_role("listitem")
        expect(bars.filter(has_text=short(DRAINED))).to_contain_text("drain blocked, 1 left", timeout=60_000)
        reported(served)
        cluster(page, shoot)
        asking(page, shoot)
        planning(page, served, shoot)


def reported(served: ServedSidecar) -> None:
    """Let brokers report until a cycle has seen what moved."""
    served.cluster.still = False
    while served.sidecar.cycle.cycle_state.ledger.bundles():
        time.sleep(0.05)
    served.cluster.still = True


def cluster(page: Page, shoot: Shoot) -> None:
    """The bars of all brokers."""
    expect(page.locator("#verdict")).to_contain_text(short(HOT))
    expect(page.get_by_text("cordoned")).to_be_visible()
    expect(page.get_by_text(re.compile(r"live \d+\ss")).first).to_be_visible()
    expect(page.locator(".facts")).to_contain_text("Takeoverthe whole cluster")
    shoot(page, "page-cluster-light")
    page.set_viewport_size(WIDE)


def asking(page: Page, shoot: Shoot) -> None:
    """Dry run of a drain, and a bundle to be moved."""
    page.get_by_role("button", name=CALM).click()
    page.get_by_role("button", name="Drain", exact=True).click()
    expect(page.get_by_role("region", name="Dry run")).to_contain_text("leave")
    page.get_by_label("Reason").fill("rack 3 gets new disks")
    shoot(page, "page-drain")
    page.keyboard.press("Escape")
    page.get_by_role("button", name=re.compile("^Move ")).first.click()
    expect(page.get_by_role("region", name="Dry run")).to_be_visible()
    shoot(page, "page-move")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def planning(page: Page, served: ServedSidecar, shoot: Shoot) -> None:
    """A plan, why, and the plan carried out."""
    ask_for_a_plan(page)
    shoot(page, "page-plan")
    page.get_by_role("button", name=re.compile("^Why .* moves$")).first.click()
    why = page.get_by_role("dialog", name="Why this move")
    expect(why).to_contain_text("The bundle now")
    expect(why.get_by_text("Asking the sidecar")).to_have_count(0)
    shoot(page, "page-why")
    page.keyboard.press("Escape")
    admin = served.sidecar.admin
    assert isinstance(admin, PacedAdmin)
    admin.takes = UNDER_WAY
    page.get_by_label(re.compile("^Execute ")).fill("even it out before the sale")
    page.get_by_role("button", name="Execute this plan").click()
    task = page.get_by_role("main").locator(".task").first
    expect(task).to_contain_text(re.compile(f"{UNDER_WAY} of [0-9]+ moves ended"))
    expect(page.locator("#verdict")).to_contain_text(
        re.compile(r"once the \d+ bundles in transit have arrived\. No further moves")
    )
    shoot(page, "page-execution")
