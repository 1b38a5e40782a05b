"""The routes and commands of calibrated thresholds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast, get_args

import httpx
import pytest
import yaml
from pydantic import TypeAdapter

from bundlekeel.cli.output import TableLayout
from bundlekeel.recalibration.adopting.responses import AdoptionView, ObjectionView, ReversionView, ThresholdsView
from bundlekeel.recalibration.settings import CalibrationSettings
from bundlekeel.recalibration.threshold_commands import changes
from tests.support.api_routes import roles
from tests.support.apps import create_app
from tests.support.shop import Shop
from tests.support.spied import Spied
from tests.support.threshold_cases import as_bytes, document, proposed
from tests.unit.api.test_routes import client
from tests.unit.cli.test_commands import Sidecar, served, sidecar  # fixtures

__all__ = ["served", "sidecar"]

WHO = ["--reason", "r", "--by", "ann"]
DIGEST = "3eb399c013b7fc53"
CHANGES: list[tuple[str, dict[str, Any], dict[str, Any], type]] = [
    ("adopt", {}, {"digest": None, "force": False, "everywhere": False}, AdoptionView),
    (
        "adopt",
        {"digest": DIGEST, "force": True, "everywhere": True},
        {"digest": DIGEST, "force": True, "everywhere": True},
        AdoptionView,
    ),
    ("revert", {}, {"digest": None}, ReversionView),
    ("revert", {"digest": DIGEST}, {"digest": DIGEST}, ReversionView),
]


async def adopted(shop: Shop) -> None:
    """Adopt the proposal."""
    await shop.calibration.adopt(digest=None, force=False, reason="looks right", by="ann")


@pytest.mark.parametrize("some", [False, True])
async def test_the_view_is_as_documented(some: bool) -> None:
    """With an adoption on trial and one reverted, and before anything was proposed."""
    shop = Shop()
    if some:
        await adopted(await shop.open())
        await shop.calibration.revert(digest=None, reason="r", by="ann")
        await shop.calibration.adopt(digest=None, force=True, reason="r", by="ann")
    else:
        await shop.lead()
    async with client(create_app(shop.service, mutations=True)) as http:
        answer = await http.get("/api/v1/thresholds")
    assert answer.status_code == 200
    view = TypeAdapter(ThresholdsView).validate_python(answer.json())
    assert (bool(view.document), bool(view.adopted), bool(view.reverted)) == (some, some, some)


@pytest.mark.parametrize(("verb", "body", "expected", "model"), CHANGES)
async def test_changes_reach_the_service(
    http: httpx.AsyncClient,
    service: Spied,
    shop: Shop,
    verb: str,
    body: dict[str, Any],
    expected: dict[str, Any],
    model: type,
) -> None:
    """With person and reason; without a reason they are refused, and where nothing may be changed there is no route."""
    if verb == "revert":
        await adopted(shop)
    answer = await http.post(f"/api/v1/thresholds/{verb}", json=body | {"reason": "r", "by": "ann"})
    assert (await http.post(f"/api/v1/thresholds/{verb}", json=body)).status_code == 422
    assert answer.status_code == 200
    assert service.calls == [(f"recalibration.{verb}", expected | {"reason": "r", "by": "ann"})]
    TypeAdapter(model).validate_python(answer.json())
    async with client(create_app(service, mutations=False)) as reading:
        refused = await reading.post(f"/api/v1/thresholds/{verb}", json=body | {"reason": "r"})
    assert refused.status_code in (404, 405)
    roles_by_route = roles(create_app(service, mutations=True))
    assert roles_by_route["POST", f"/api/v1/thresholds/{verb}"] == "operator"
    assert roles_by_route["GET", "/api/v1/thresholds"] == "viewer"


async def test_objections_come_as_a_conflict(http: httpx.AsyncClient, shop: Shop) -> None:
    """Each on a line of its own."""
    await adopted(shop)
    answer = await http.post("/api/v1/thresholds/adopt", json={"reason": "r"})
    assert answer.status_code == 409 and answer.json()["difference"]
    assert (await shop.calibration.view()).adopted is not None


@pytest.mark.parametrize("command", ["show", "diff"])
@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_reads(sidecar: Sidecar, command: str, output: str) -> None:
    """In every format; JSON and YAML can be read."""
    result = sidecar.run("thresholds", command, "-o", output)
    assert result.exit_code == 0, result.output
    read: dict[str, Callable[[str], Any]] = {"json": json.loads, "yaml": yaml.safe_load}
    assert read.get(output, str.strip)(result.stdout)


def test_show_tells_everything(sidecar: Sidecar) -> None:
    proposals = sidecar.shop.proposed

    def put(number: int, **parameters: dict[str, Any]) -> str:
        content = as_bytes(document(sidecar.shop.clock.wall_ms(), parameters))
        proposals.put(f"2026-09-1{number}T020000Z/thresholds.json", content)
        sidecar.do(sidecar.shop.calibration.check())
        view: ThresholdsView = sidecar.do(sidecar.shop.calibration.view())
        assert view.document is not None
        return str(view.document["digest"])

    service = sidecar.shop.calibration
    sidecar.do(service.adopt(digest=None, force=False, reason="r", by="ann"))
    sidecar.do(service.revert(digest=None, reason="worse", by="ann"))
    put(6, max_moves_per_source=proposed(6.0, 4.0, step=2.0))
    sidecar.do(service.adopt(digest=None, force=False, reason="r", by="ann"))
    digest = put(7, avg_low_threshold_percent=proposed(27.5, 15.0))
    text = " ".join(sidecar.run("thresholds", "show").stdout.split())
    for part in (f"proposal {digest}", "14 days, 99.0% recorded", "StepTooLarge", "avg_low_threshold_percent"):
        assert part in text
    for part in ("max_moves_per_source 6 (settings: 4)", "on trial 0 s of 1h 0m", "reverted by ann"):
        assert part in text
    assert "on 3 held-out days: 2026-09-18 to 2026-09-20" in text
    assert "moves an hour 6 [5.4, 6.6] 4 [3.6, 4.4]" in text
    assert "max/mean of score 1.120 [1.108, 1.132] 1.120 [1.108, 1.132] +0.000 (+0.0%) [+0.000, +0.000]" in text
    assert "4 [3.6, 4.4] -2 (-33.3%) [-2.2, -1.8]" in text
    assert text.count("StepTooLarge: ") == 1
    output = " ".join(sidecar.run("thresholds", "diff").stdout.split())
    assert all("--force overrides it" in page_text for page_text in (text, output)) and "StepTooLarge: " in output


def test_without_a_proposal_both_say_so(sidecar: Sidecar) -> None:
    """The first night has not ended."""
    sidecar.service.results["recalibration.view"] = lambda view: replace(
        view, sentence="there is no proposal yet", document=None, changes=[], objections=[]
    )
    assert "there is no proposal yet" in sidecar.run("thresholds", "show").stdout
    assert "nothing would change" in sidecar.run("thresholds", "diff").stdout


def test_an_objection_that_says_it_was_worse_invites_nobody_to_force_it() -> None:
    """`--force` overrides these as well, but the job's report names no command with it."""
    rows = [
        ObjectionView(code=code, field="", detail="d", explanation="e", person="force")
        for code in ("NotBetter", "TooOld")
    ]
    empty = ThresholdsView(
        mode="adopt",
        sentence="",
        error="",
        read_ms=0,
        document=None,
        changes=[],
        objections=rows,
        adopted=None,
        reverted=[],
    )
    group = changes(empty, TableLayout())
    texts = [str(part) for part in group.renderables[:2]]
    assert texts[0].endswith("; --force overrides it, but do not: it was worse, or not better")
    assert texts[1].endswith("; --force overrides it")


@pytest.mark.parametrize("obstacle", ["", "BrokersShedThemselves"])
def test_a_trial_without_figures_is_told_as_such(sidecar: Sidecar, obstacle: str) -> None:
    """And what keeps the leader from balancing, as nothing is measured until that ends."""
    sidecar.do(sidecar.shop.calibration.adopt(digest=None, force=False, reason="r", by="ann"))

    def hold_view(view: ThresholdsView) -> ThresholdsView:
        assert view.adopted is not None and view.adopted.trial is not None
        return replace(view, adopted=replace(view.adopted, trial=replace(view.adopted.trial, obstacle=obstacle)))

    sidecar.service.results["recalibration.view"] = hold_view
    text = " ".join(sidecar.run("thresholds", "show").stdout.split())
    why = f"; Bundlekeel does not balance now: {obstacle}" if obstacle else ""
    assert text.endswith(f"on trial 0 s of 1h 0m: no measurement yet{why}")


def test_a_first_stage_is_shown_with_its_namespaces(sidecar: Sidecar) -> None:
    """With the other namespaces as the reference, and the next step if it cannot be judged."""
    sidecar.do(sidecar.shop.calibration.adopt(digest=None, force=False, reason="r", by="ann"))

    def stage(view: ThresholdsView) -> ThresholdsView:
        assert view.adopted is not None and view.adopted.trial is not None
        trial = replace(view.adopted.trial, imbalance=0.1, imbalance_before=0.05, unjudged="no bundle moved")
        return replace(view, adopted=replace(view.adopted, namespaces=["shop/orders"], trial=trial))

    sidecar.service.results["recalibration.view"] = stage
    text = " ".join(sidecar.run("thresholds", "show").stdout.split())
    assert "in force in shop/orders: " in text and "load of their brokers/mean 1.100 (promised at most" in text
    assert "other namespaces 1.050)" in text
    assert text.endswith("; no bundle moved: adopt it --everywhere, or revert it")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["adopt"], {"digest": None, "force": False, "everywhere": False}),
        (["adopt", "--digest", DIGEST, "--force"], {"digest": DIGEST, "force": True, "everywhere": False}),
        (["adopt", "--everywhere"], {"digest": None, "force": False, "everywhere": True}),
        (["revert"], {"digest": None}),
        (["revert", "--digest", DIGEST], {"digest": DIGEST}),
    ],
)
def test_changes(sidecar: Sidecar, command: list[str], expected: dict[str, Any]) -> None:
    if command[0] == "revert":
        sidecar.do(adopted(sidecar.shop))
    result = sidecar.run("thresholds", *command, *WHO)
    assert result.exit_code == 0, result.output
    assert sidecar.service.asked(f"recalibration.{command[0]}") == [expected | {"reason": "r", "by": "ann"}]
    refused = sidecar.run("thresholds", *command, *WHO, to="url")
    assert refused.exit_code == 4 and "unix socket" in refused.stderr


def test_modes_are_those_of_the_settings() -> None:
    schemas = create_app(cast(Any, None), mutations=True).openapi()["components"]["schemas"]
    words = schemas["ThresholdsView"]["properties"]["mode"]["enum"]
    assert set(words) == set(get_args(CalibrationSettings.model_fields["mode"].annotation))
