"""The page over a real sidecar and a real three-broker cluster: from an imbalance to an executed plan."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from dev.cluster import Cluster, ClusterSpec, open_cluster
from dev.sidecar import Sidecar, bundlekeel, settings_for
from tests.chaos.stage import PATIENT, QUICK, Scene, traffic_for, until
from tests.support.security import Tokens
from tests.ui.conftest import Open, ask_for_a_plan, findings, sign_in, view

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """A cluster with all its traffic on the first broker."""
    with open_cluster(ClusterSpec(brokers=3, mode="modular")) as cluster, traffic_for(cluster) as traffic:
        value = Scene(cluster, traffic)
        value.gather()
        yield value


class Guarded:
    """A sidecar in mode act that asks for credentials; what moves, a person asked for."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.tokens = Tokens(directory)
        settings = settings_for(cluster, "page", directory, **QUICK, parameters=PATIENT)
        settings["api"] = {**settings["api"], "auth": {"tokens_file": str(self.tokens.path)}}
        self.sidecar = Sidecar("page", settings, directory)

    @property
    def url(self) -> str:
        """The address of the page."""
        match = re.search(r'"url": ?"(http://[^"]+)"', self.sidecar.log.read_text(encoding="utf-8"))
        assert match is not None
        return match[1]


@pytest.fixture(scope="module")
def guarded(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """It leads, sees all three brokers, and they have left shedding to it."""
    value = Guarded(scene.cluster, tmp_path_factory.mktemp("page"))
    arguments = ("-c", str(value.sidecar.config), "--yes", "--reason", "test")
    result = bundlekeel("takeover", *arguments, within=120)
    assert result.returncode == 0, result.stdout + result.stderr
    value.sidecar.start()
    try:
        until(lambda: value.sidecar.state().get("role") == "leader", "it leads", within=60)
        until(lambda: len(value.sidecar.picture()) == 3, "all brokers report", within=120)
        yield value
    finally:
        value.sidecar.close()
        assert bundlekeel("handback", *arguments, within=120).returncode == 0


def test_from_imbalance_to_an_execution(guarded: Guarded, open_page: Open, axe: str) -> None:
    """A viewer sees it and may not; an operator plans, carries it out, watches it end, and the bundles landed there."""
    page = open_page(guarded.url)
    sign_in(page, guarded.tokens, "viewer")
    expect(page.locator("#verdict")).to_contain_text("times the mean", timeout=60_000)
    assert findings(page, axe) == []
    view(page, "Plan")
    expect(page.get_by_text("Requesting a plan needs role operator.")).to_be_visible()

    page.get_by_role("button", name="Sign out").click()
    sign_in(page, guarded.tokens, "operator")
    ask_for_a_plan(page)
    assert findings(page, axe) == []
    page.get_by_role("button", name=re.compile("^Why .* moves$")).first.click()
    why = page.get_by_role("dialog", name="Why this move")
    expect(why).to_contain_text("The bundle now")
    expect(why.get_by_text("Asking the sidecar")).to_have_count(0)
    page.keyboard.press("Escape")
    what_if(page)
    executed(page, guarded)
    assert findings(page, axe) == []


def what_if(page: Page) -> None:
    """One broker more: it is filled, and that is said to be a what-if, which is never carried out."""
    view(page, "What if")
    page.get_by_label("Brokers added").fill("1")
    page.get_by_label("Skip the waiting period").check()
    page.get_by_role("button", name="Plan with these changes").click()
    expect(page.get_by_text("This is a what-if")).to_be_visible()
    pairs = page.get_by_role("list", name="Load of each broker before and after").get_by_role("listitem")
    expect(pairs).to_have_count(4)


def executed(page: Page, guarded: Guarded) -> None:
    """Carried out with a reason, watched to its end; the journal has every move."""
    ask_for_a_plan(page)
    page.get_by_label(re.compile("^Execute ")).fill("even it out")
    page.get_by_role("button", name="Execute this plan").click()
    task = page.get_by_role("main").locator(".task").first
    expect(task).to_contain_text(re.compile(r"Requested by the-operator at [\d:]{8} UTC: even it out"))
    expect(task.get_by_role("heading")).to_contain_text("done", timeout=180_000)
    match = re.search(r"(\d+) of (\d+) reached the requested broker", task.inner_text())
    assert match is not None and match[1] == match[2] != "0"
    view(page, "Journal")
    page.get_by_label("Show").select_option("moves")
    expect(page.locator(".entry.move")).to_have_count(int(match[1]))
    landed = [move for move in guarded.sidecar.moves() if move["landed_on"] == move["destination"] != move["source"]]
    assert len(landed) == int(match[1])
