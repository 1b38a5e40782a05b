"""The checks of `doctor` on the page."""

from __future__ import annotations

import httpx
from playwright.sync_api import expect

from bundlekeel.model.check import Check
from tests.support.page_world import ServedSidecar
from tests.support.shop import BROKERS
from tests.support.spied import always
from tests.ui.conftest import Open, findings, view
from tests.ui.served_shop import ServedShop

FINDINGS = [
    Check.passed("metadata store", "zk:zk1:2181/pulsar answers"),
    Check.failed("shedding", f"{BROKERS[1]} still sheds itself", "run `bundlekeel takeover`"),
    Check.warned("nic", "NICs report no limit", "set capacity.nic_gbps"),
]


def test_doctor(open_page: Open) -> None:
    """Failed checks come first, then warnings, each with its finding and the next step. A button repeats the checks."""
    with ServedShop() as served:
        served.spied.results["doctor"] = always(FINDINGS)
        page = open_page(served.url)
        view(page, "Doctor")
        expect(page.get_by_role("main").get_by_role("status")).to_have_text("3 checks: 1 failed, 1 warning, 1 ok")
        rows = page.get_by_role("region", name="Checks").get_by_role("row")
        expect(rows.nth(1)).to_contain_text(f"✕ failedshedding{BROKERS[1]} still sheds itselfrun bundlekeel takeover")
        expect(rows.nth(1).locator("code")).to_have_text("bundlekeel takeover")
        expect(rows.nth(2)).to_contain_text("! warningnicNICs report no limitset capacity.nic_gbps")
        expect(rows.nth(3)).to_contain_text("✓ okmetadata storezk:zk1:2181/pulsar answers")
        expect(rows.nth(3).get_by_role("cell").last).to_be_empty()
        served.change()
        repaired = [Check.passed("shedding", "off")]
        served.spied.results["doctor"] = always(repaired)
        page.get_by_role("button", name="Check again").click()
        expect(rows).to_have_count(2)
        expect(page.get_by_role("columnheader", name="What to do next")).to_have_count(0)
        repaired.append(Check.failed("seats", "1 sidecar", "start another one"))
        page.get_by_label("Also run the checks for mode act").check()
        expect(page.get_by_role("main").get_by_role("status")).to_have_text("2 checks: 1 failed, 0 warnings, 1 ok")
        arguments = [request["for_act"] for request in served.spied.asked("doctor")]
        assert arguments == [False, False, True], "never by itself"


def test_doctor_of_a_whole_sidecar(watched: ServedSidecar, open_page: Open, axe: str) -> None:
    """Every check of the API is in the table, for all users."""
    page = open_page(watched.url)
    view(page, "Doctor")
    answer = httpx.get(f"{watched.url}/api/v1/doctor")
    assert answer.status_code == 200, answer.text
    expect(page.get_by_role("region", name="Checks").get_by_role("row")).to_have_count(1 + len(answer.json()))
    expect(page.get_by_role("row").filter(has_text="metadata store")).to_contain_text("ok")
    assert findings(page, axe) == []
