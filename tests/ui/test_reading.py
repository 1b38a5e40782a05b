"""Texts of the page agree with each other and are readable: headline, bars, journal, dialogs, a phone."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from bundlekeel.views.picture import ComingView, CycleView, Setting
from tests.support.page_world import ServedSidecar
from tests.support.security import Tokens
from tests.support.shop import BROKERS, NOW_MS
from tests.support.spied import always
from tests.support.world import EAGER
from tests.ui.conftest import HOT, LOADS, NARROW, WIDE, Open, ask_for_a_plan, findings, sign_in, view
from tests.ui.served_shop import ServedShop

PHONE = NARROW | {"width": 390, "height": 844}
ENDING = ".pulsar-broker-headless.pulsar-prod.svc.cluster.local:8080"
# Of an element: how far its content is wider than it is.
HIDDEN = "element => element.scrollWidth - element.clientWidth"
# Of an element: the text of its paragraphs that is in nothing smaller, whose lines may end anywhere.
LOOSE = """element => [...element.querySelectorAll('p')].flatMap(p => [...p.childNodes])
    .filter(node => node.nodeType === Node.TEXT_NODE).map(node => node.data).join('')"""


def move(at: int, **more: Any) -> dict[str, Any]:
    """A journal line of a move that ended well."""
    names = {"source": BROKERS[0], "destination": BROKERS[2], "landed_on": BROKERS[2], "bundle": f"shop/orders/{at}"}
    return {"kind": "move", "wall_ms": NOW_MS + at, "sentence": f"moved number {at}", "outcome": "done"} | names | more


def cycle(code: str) -> CycleView:
    """One that planned nothing."""
    names = {"id": 1, "wall_ms": NOW_MS, "sentence": "brokers are alike", "seconds": 0.1, "obstacle": None}
    return CycleView(verdict=code, moves=0, **names)


def test_balanced_is_said_without_the_broker_kept_empty(open_page: Open) -> None:
    """The verdict ignores a drained broker in the mean."""
    with ServedShop() as served:
        scores = dict(zip(BROKERS, (0.5, 0.0, 0.48), strict=True))
        served.brokers = {
            name: {"score_ratio": score, "state": "ok", "shares_load": score > 0, "preallocated": []}
            for name, score in scores.items()
        }
        served.change(cycle=cycle("Balanced"))
        page = open_page(served.url)
        expect(page.locator("#verdict")).to_have_text(
            re.compile(
                r"^Balanced: the most loaded broker, broker-0, carries 1\.02 times the mean \(50\s%.*49\s%\)\. No moves"
            )
        )
        served.change(cycle=cycle("HitCount"))
        expect(page.locator("#verdict")).to_contain_text("Broker broker-0 carries 1.02 times the mean")
        expect(page.locator("#verdict")).to_contain_text("No moves planned yet.")


@pytest.mark.parametrize(
    ("role", "says"),
    [
        ("leader", "now broker broker-0 carries"),
        ("follower", "now, with the values of this sidecar, broker broker-0 carries"),
    ],
)
def test_balanced_is_not_said_of_figures_that_are_uneven(open_page: Open, role: str, says: str) -> None:
    """The verdict is the leader's at its last cycle, the figures are those that this sidecar has now: the headline says
    which is which."""
    with ServedShop() as served:
        for name, score in zip(BROKERS, (0.19, 0.15, 0.07), strict=True):
            served.brokers[name] = {"score_ratio": score, "state": "ok", "shares_load": True, "preallocated": []}
        served.change(cycle=cycle("Balanced"), role=role)
        page = open_page(served.url)
        expect(page.locator("#verdict")).to_have_text(
            re.compile(
                rf"^The last cycle found the brokers balanced; {says} 1\.39 times the mean \(19\s%.*14\s%\)\. "
                r"No moves planned\.$"
            )
        )


@pytest.mark.parametrize(
    ("amounts", "text"),
    [((0, 1, 0), "the bundle in transit has arrived"), ((1, 0, 2), "the 3 bundles in transit have arrived")],
)
def test_bundles_on_the_way_are_part_of_the_verdict(open_page: Open, amounts: tuple[int, ...], text: str) -> None:
    """The scores count them where they go; a plan that is carried out is not denied."""
    with ServedShop() as served:
        for name, score, amount in zip(BROKERS, (0.5, 0.48, 0.46), amounts, strict=True):
            coming = [ComingView(bundle=f"shop/orders/{n}", age_seconds=2.0) for n in range(amount)]
            served.brokers[name] = {
                "score_ratio": score,
                "state": "ok",
                "shares_load": True,
                "preallocated": coming,
            }
        served.change(cycle=cycle("HitCount"))
        page = open_page(served.url)
        expect(page.locator("#verdict")).to_have_text(
            re.compile(
                rf"^Broker broker-0 carries 1\.04 times the mean \(.*\) once {text}\. No further moves planned yet\.$"
            )
        )


def test_a_name_in_the_headline_is_not_broken(open_page: Open) -> None:
    """At its hyphen, where the line ends there."""
    with ServedShop() as served:
        page = open_page(served.url)
        verdict = page.locator("#verdict")
        expect(verdict).to_contain_text("broker-0")
        lines = "box => [...box.querySelectorAll('span')].map(one => [one.textContent, one.getClientRects().length])"
        for width in range(330, 460, 10):
            page.set_viewport_size({"width": width, "height": 700})
            assert verdict.evaluate(lines) == [["broker-0", 1]]


def test_a_name_keeps_its_signs(open_page: Open) -> None:
    """No line ends between a broker's name and the bracket before it or the comma behind it."""
    with ServedShop() as served:
        served.change(mode="act", acting_obstacle="RecommendOnly", acting_detail=", ".join(BROKERS[:2]))
        page = open_page(served.url)
        names = page.locator(".head .notice", has_text="no plan is executed").locator(".whole")
        expect(names).to_have_text([f"({BROKERS[0]},", f"{BROKERS[1]})."])


def test_a_panel_has_the_resources_of_its_broker(open_page: Open) -> None:
    """The busiest one is marked. Extensible brokers report a score instead."""
    with ServedShop() as served:
        page = open_page(served.url)
        page.get_by_role("button", name=BROKERS[0]).click()
        used = page.get_by_role("dialog").get_by_text("In use")
        expect(used).to_have_text(
            re.compile(
                r"^In use: CPU 82\.0\s%, direct memory 40\.0\s%, bandwidth in \d\.\d\s%, bandwidth out \d\.\d\s%\.$"
            )
        )
        served.brokers[BROKERS[0]] = {"load_manager": "ExtensibleLoadManagerImpl"}
        served.change()
        expect(used).to_have_count(0)


def test_what_happened_to_a_broker_is_short(tokens: Tokens, open_page: Open) -> None:
    """A move that landed where it was sent names its destination once, as in the journal."""
    with ServedSidecar(loads=LOADS, tokens=tokens, params=EAGER) as served:
        page = open_page(served.url)
        sign_in(page, tokens, "operator")
        expect(page.locator("#verdict")).to_contain_text("Balanced")
        page.get_by_role("button", name=HOT).click()
        happened = page.get_by_role("heading", name="What happened to it").locator("+ ul").get_by_role("listitem")
        expect(happened.first).to_contain_text("done")
        expect(happened.filter(has_text="owned by")).to_have_count(0)


def test_overloaded_is_above_the_overload_threshold(open_page: Open) -> None:
    """Below it, a broker that bundles should leave is said to be one."""
    with ServedShop() as served:
        page = open_page(served.url)
        row = page.get_by_role("list", name="Brokers, most loaded first").get_by_role("listitem").first
        expect(row).to_contain_text("▽ should give bundles")
        expect(row).not_to_contain_text("overloaded")
        served.change(overloaded_ratio=0.8)
        expect(row).to_contain_text("! overloaded")
        expect(row).not_to_contain_text("should give bundles")


def many(page: Page) -> None:
    """Sixty brokers as Kubernetes names them."""
    bars = page.get_by_role("list", name="Brokers, most loaded first").get_by_role("listitem")
    expect(bars).to_have_count(60)
    expect(page.locator("#verdict")).to_contain_text(
        re.compile(r"^Broker pulsar-broker-0 carries [\d.]+ times the mean")
    )
    name = page.get_by_role("button", name=f"pulsar-broker-0{ENDING}")
    expect(name).to_have_text("pulsar-broker-0")
    expect(name).to_have_attribute("title", f"pulsar-broker-0{ENDING}")
    height = "document.documentElement.scrollHeight"
    low = page.evaluate(height)
    page.get_by_label("compact").uncheck()
    expect(bars.first).to_contain_text("MB/s")
    assert low < 0.6 * page.evaluate(height), "the compact form, which comes first, needs less room"


def test_many_brokers(open_page: Open) -> None:
    """The ending that all names have is left out, and the first form is a compact one; in the panel names are whole."""
    loads = {f"pulsar-broker-{n}{ENDING}": [("shop/orders", 0.9 if n == 0 else 0.3)] for n in range(60)}
    with ServedSidecar(loads=loads, mode="recommend", every_seconds=10.0) as served:
        many(open_page(served.url, size=PHONE))
        page = open_page(served.url)
        many(page)
        page.get_by_role("button", name=f"pulsar-broker-0{ENDING}").click()
        expect(page.get_by_role("dialog", name=f"Broker pulsar-broker-0{ENDING}")).to_be_visible()


def test_on_a_phone(watched: ServedSidecar, open_page: Open) -> None:
    """A bar is on the first screen; a plan's throughput and Why, the tab of the view, and every column of the settings
    (on a desktop too) are within it."""
    page = open_page(watched.url, size=PHONE)
    expect(page.locator(".brokers .track").first).to_be_in_viewport()
    ask_for_a_plan(page)
    assert page.get_by_role("region", name="Moves").evaluate(HIDDEN) <= 0
    expect(page.get_by_role("button", name=re.compile("^Why .* moves$")).first).to_be_visible()
    view(page, "Settings")
    desk = open_page(watched.url)
    view(desk, "Settings")
    page.reload()
    for shown_page in (page, desk):
        shown_page.get_by_text("metadata_store", exact=True).first.wait_for()
        assert shown_page.get_by_role("region", name="Settings").evaluate(HIDDEN) <= 0
        expect(shown_page.locator("nav [aria-current]")).to_be_in_viewport(ratio=1)


def test_the_top_on_a_phone(tokens: Tokens, open_page: Open, axe: str) -> None:
    """The name of the cluster and the verdict; everything else is one button away."""
    with ServedSidecar(loads=LOADS, tokens=tokens) as served:
        page = open_page(served.url, size=PHONE)
        sign_in(page, tokens, "operator")
        top = page.locator(".head .top")
        assert top.bounding_box()["height"] < 50
        button = page.get_by_role("button", name="More")
        rest = (
            page.get_by_label("Bundle, topic, namespace or broker"),
            page.get_by_role("button", name="Pause"),
            page.get_by_text("the-operator (operator)"),
            page.locator(".sentence"),
            page.locator(".facts"),
        )
        for part in rest:
            expect(part).to_be_hidden()
        button.click()
        for part in rest:
            expect(part).to_be_visible()
        assert page.locator("html").evaluate(HIDDEN) <= 0
        assert findings(page, axe) == []
        page.get_by_role("button", name="Less").click()
        expect(rest[0]).to_be_hidden()
        page.set_viewport_size(WIDE)
        for part in rest:
            expect(part).to_be_visible()
        expect(button).to_be_hidden()


def test_an_idle_cluster_is_not_compared_with_its_mean(open_page: Open) -> None:
    """Without load there is no mean to compare with."""
    with ServedSidecar(loads={f"broker-{n}:8080": [("shop/orders", 0.0)] for n in range(2)}) as served:
        page = open_page(served.url)
        expect(page.locator("#verdict")).to_contain_text("The cluster is idle")
        view(page, "Plan")
        page.get_by_role("button", name="Request a plan").click()
        expect(page.locator(".planline")).to_have_text("0 moves: no broker has load.")
        expect(page.get_by_role("list", name="Load of each broker before and after")).not_to_contain_text("→")
        expect(page.get_by_role("main")).not_to_contain_text("0.00")


def test_a_broker_that_is_not_there_has_no_buttons(watched: ServedSidecar, open_page: Open) -> None:
    """A mistyped address gets one message and no buttons."""
    page = open_page(watched.url)
    page.evaluate("location.hash = '#/cluster?broker=broker-99:8080'")
    panel = page.get_by_role("dialog", name="Broker broker-99:8080")
    expect(panel.get_by_text(re.compile("broker-99:8080"))).to_have_count(2)  # the title, and that there is none
    expect(panel.get_by_role("button", name="Drain")).to_have_count(0)


def test_a_long_setting_hides_nothing(open_page: Open) -> None:
    """The source and the purpose of a setting stay within the table."""
    row = Setting(key="quotas.groups", value="x" * 500, unit="", origin="file", why="the groups", pulsar_keys=[])
    other = replace(row, key="force_mixed", value=False, unit="true/false", why="see `config check`")
    with ServedShop() as served:
        served.spied.results["settings"] = always([row, other])
        page = open_page(served.url)
        view(page, "Settings")
        page.get_by_role("row", name="quotas.groups").wait_for()
        assert page.get_by_role("region", name="Settings").evaluate(HIDDEN) <= 0
        expect(page.get_by_role("row", name="quotas.groups")).to_contain_text("the groups")
        expect(page.get_by_role("row", name="force_mixed")).to_have_text("force_mixedfalse filesee config check")


def test_the_journal_is_searched(open_page: Open) -> None:
    """The search covers words, a period, and older entries. An effect appears only at its move."""
    with ServedShop() as served:
        scores = {"source_before": 0.104, "source_after": 0.101, "target_before": 0.02, "target_after": 0.023}
        judged = {"effect": "helped", "predicted_gain": 0.25, "realised_gain": 0.2, "predicted": scores}
        entry = {"kind": "effect", "source": BROKERS[0], "destination": BROKERS[2], "predicted": 0.25, "realised": 0.2}
        effect = entry | {"wall_ms": NOW_MS + 299, "outcome": "helped", "sentence": "1 move: helped"}
        served.spied.results["journal"] = always([*(move(at) for at in range(298)), move(298, **judged), effect])
        page = open_page(served.url)
        view(page, "Journal")
        entries = page.locator(".entry")
        expect(entries).to_have_count(299)
        expect(page.locator(".entry.effect")).to_have_count(0)
        expect(entries.first).to_contain_text("Effect: helped. The peak of the two brokers went down by 20.0")
        expect(entries.first).to_contain_text(re.compile(r"from 10\.4\s% to 10\.1\s% of its capacity"))
        page.get_by_label("Broker, bundle, operator or word").fill("orders/42")
        expect(entries).to_have_count(1)
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save as JSON Lines").click()
        assert saved.value.suggested_filename == "bundlekeel-journal.jsonl"
        (line,) = saved.value.path().read_text(encoding="utf-8").splitlines()
        assert json.loads(line)["sentence"] == "moved number 42"
        page.get_by_role("button", name="Older entries").click()
        expect(entries).to_have_count(2)
        page.get_by_label("From", exact=True).fill("2026-09-01T00:00")
        expect(entries).to_have_count(1)
        spans = [request["period"] for request in served.spied.asked("journal")]
        assert NOW_MS in [span.until_ms for span in spans] and spans[-1].since_ms > 0
        assert {"quota", "settings"} <= set(
            page.get_by_label("Show").locator("option").evaluate_all("all => all.map(e => e.value)")
        )


def test_thresholds_that_are_only_recommended_are_said_to_be(open_page: Open) -> None:
    """They are not adopted; the line shows their state."""
    with ServedShop() as served:
        entry = {"kind": "adoption", "wall_ms": NOW_MS, "sentence": "avg_low_threshold_percent 15 -> 20"}
        codes = ("ThresholdsRecommended", "ThresholdsAdopted")
        served.spied.results["journal"] = always([entry | {"code": code} for code in codes])
        page = open_page(served.url)
        view(page, "Journal")
        expect(page.locator(".entry .tag")).to_have_text(["thresholds adopted", "thresholds recommended"])


def test_quiet_cycles_are_one_line(open_page: Open) -> None:
    """Cycles that move nothing, whatever else is between them: how many, and until when; those that plan moves stand
    alone."""
    with ServedShop() as served:
        codes = ("Balanced", "HitCount", "Unsettled", "HitCount", "Overloaded", "Balanced")
        records = [
            {"kind": "cycle", "wall_ms": NOW_MS + 2000 * at, "code": code, "planned": code == "Overloaded"}
            | {"sentence": f"cycle of {code}"}
            for at, code in enumerate(codes)
        ]
        records.insert(2, move(3000))
        served.spied.results["journal"] = always(records)
        page = open_page(served.url)
        view(page, "Journal")
        entries = page.locator(".entry")
        expect(entries).to_have_count(4)
        expect(entries.nth(1)).to_contain_text("cycle of Overloaded")
        expect(entries.nth(2)).to_contain_text("moved number 3000")
        until = page.evaluate("ms => new Date(ms).toLocaleTimeString('en-GB', {timeZoneName: 'short'})", NOW_MS + 6000)
        expect(entries.last).to_contain_text(
            re.compile(rf"cycle of Balanced \(and 3 similar cycles, until .*{until}\)$")
        )
        page.get_by_label("Show").select_option("cycles")
        expect(entries).to_have_count(6 + 1)  # the response is the same for all kinds


def test_a_dialog_can_be_left(tokens: Tokens, open_page: Open) -> None:
    """Cancel is next to the button that acts, which is highlighted if clients notice the action. Heavy bundles come
    first.
    """
    with ServedSidecar(loads=LOADS, tokens=tokens) as served:
        page = open_page(served.url)
        sign_in(page, tokens, "operator")
        page.get_by_role("button", name=HOT).click()
        page.get_by_role("button", name="Drain", exact=True).click()
        dialog = page.get_by_role("dialog", name=f"Drain {HOT}")
        moves = dialog.get_by_role("list", name="Moves").get_by_role("listitem")
        expect(moves.first).to_contain_text("20.0 MB/s")
        loose = dialog.get_by_role("region", name="Dry run").evaluate(LOOSE)
        assert ":8080" not in loose, "no line ends within a broker's name"
        colour = "element => getComputedStyle(element).backgroundColor"
        calm = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--accent')")
        assert dialog.get_by_role("button", name="Drain this broker").evaluate(colour) != calm
        dialog.get_by_role("button", name="Cancel").click()
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("dialog", name=f"Broker {HOT}")).to_be_visible()


def test_a_plan_says_that_the_last_cycle_made_another(watched: ServedSidecar, open_page: Open) -> None:
    """The one on top of the page waits, this one does not."""
    page = open_page(watched.url)
    ask_for_a_plan(page)
    expect(page.get_by_text("The top of the page shows the last cycle's plan")).to_contain_text(
        "skips the waiting period"
    )


def test_a_reading_route_is_tried(watched: ServedSidecar, open_page: Open) -> None:
    """The request is sent as written, and its response shown. Headers between sidecars are not among its fields."""
    page = open_page(watched.url)
    view(page, "API")
    page.get_by_label("Show routes with").fill("/whoami")
    page.locator("details.route summary").click()
    page.get_by_role("button", name="Try it").click()
    expect(page.locator(".tried")).to_contain_text('"member": "a"')
    page.get_by_label("Show routes with").fill("/plans")
    page.get_by_label("Expand all").check()
    expect(page.get_by_role("row", name="traffic_scale").first).to_be_visible()
    expect(page.get_by_role("row", name="forwarded")).to_have_count(0)
    expect(page.locator("details.route summary code").filter(has_text="here")).to_have_count(1)
