"""The routes and commands of calibrated thresholds, against a fake."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
import yaml
from pydantic import TypeAdapter

from bundlekeel.api import create_app
from bundlekeel.cli.intervene.thresholds import changes
from bundlekeel.cli.output import TableLayout
from bundlekeel.core.model.errors import Conflict
from bundlekeel.daemon.answers.operations import AdoptionView, ObjectionView, ReversionView, ThresholdsView
from tests.support.api_routes import roles
from tests.support.fake_service import FakeService
from tests.support.fake_thresholds import DIGEST, TRIAL
from tests.unit.cli.test_commands import Sidecar, served, sidecar  # fixtures

__all__ = ["served", "sidecar"]

WHO = ["--reason", "r", "--by", "ann"]
CHANGES: list[tuple[str, dict[str, Any], tuple[str, Any], type]] = [
    ("adopt", {}, ("adopt_thresholds", (None, False, "r", "ann")), AdoptionView),
    (
        "adopt",
        {"digest": DIGEST, "force": True},
        ("adopt_thresholds", (DIGEST, True, "r", "ann")),
        AdoptionView,
    ),
    ("revert", {}, ("revert_thresholds", (None, "r", "ann")), ReversionView),
    ("revert", {"digest": DIGEST}, ("revert_thresholds", (DIGEST, "r", "ann")), ReversionView),
]


def client(service: FakeService, *, mutations: bool = True) -> httpx.AsyncClient:
    """Of an app."""
    app = create_app(service, mutations=mutations)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost:8090")


@pytest.mark.parametrize("empty", [False, True])
async def test_the_view_is_as_documented(empty: bool) -> None:
    """With everything, and before anything was proposed."""
    service = FakeService()
    service.thresholds.empty = empty
    async with client(service) as http:
        answer = await http.get("/api/v1/thresholds")
    assert answer.status_code == 200
    TypeAdapter(ThresholdsView).validate_python(answer.json())


@pytest.mark.parametrize(("verb", "body", "expected", "model"), CHANGES)
async def test_changes_reach_the_service(
    verb: str, body: dict[str, Any], expected: tuple[str, Any], model: type
) -> None:
    """With person and reason; without a reason they are refused, and where nothing may be changed there is no route."""
    service = FakeService()
    async with client(service) as http:
        answer = await http.post(f"/api/v1/thresholds/{verb}", json=body | {"reason": "r", "by": "ann"})
        assert (await http.post(f"/api/v1/thresholds/{verb}", json=body)).status_code == 422
    assert answer.status_code == 200 and service.calls == [expected]
    TypeAdapter(model).validate_python(answer.json())
    async with client(service, mutations=False) as http:
        assert (await http.post(f"/api/v1/thresholds/{verb}", json=body | {"reason": "r"})).status_code in (404, 405)
    known = roles(create_app(service, mutations=True))
    assert known["POST", f"/api/v1/thresholds/{verb}"] == "operator"
    assert known["GET", "/api/v1/thresholds"] == "viewer"


async def test_objections_come_as_a_conflict() -> None:
    """Each on a line of its own."""
    service = FakeService()
    service.fail["adopt_thresholds"] = Conflict("it does not come into force", difference=["TooOld: 40 h old"])
    async with client(service) as http:
        answer = await http.post("/api/v1/thresholds/adopt", json={"reason": "r"})
    assert answer.status_code == 409 and answer.json()["difference"] == ["TooOld: 40 h old"]


@pytest.mark.parametrize("command", ["show", "diff"])
@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_reads(sidecar: Sidecar, command: str, output: str) -> None:
    """In every format; JSON and YAML can be read."""
    result = sidecar.run("thresholds", command, "-o", output)
    assert result.exit_code == 0, result.output
    read: dict[str, Callable[[str], Any]] = {"json": json.loads, "yaml": yaml.safe_load}
    assert read.get(output, str.strip)(result.stdout)


def test_show_tells_everything(sidecar: Sidecar) -> None:
    """The proposal, what speaks against it, what is on trial, what was reverted."""
    sidecar.service.thresholds.far = True
    text = " ".join(sidecar.run("thresholds", "show").stdout.split())
    for part in (f"proposal {DIGEST}", "14 days, 99.0% recorded", "StepTooLarge", "avg_low_threshold_percent 7.5 20"):
        assert part in text
    for part in ("split_hit_count 6 (settings: 3)", "on trial 30m 0s of 6h 0m", "at most 1.132", "reverted by ann"):
        assert part in text
    assert "on 3 held-out days: 2026-09-18 to 2026-09-20, planned again each 60 s" in text
    assert "moves an hour 6 [5.4, 6.6] 4 [3.6, 4.4]" in text
    assert (
        "max/mean of score 1.120 [1.108, 1.132] 1.120 [1.108, 1.132] +0.000 (+0.0%) [+0.000, +0.000] 1.120 → 1.120"
        in text
    )
    assert "4 [3.6, 4.4] -2 (-33.3%) [-2.2, -1.8]" in text
    assert text.count("StepTooLarge: ") == 1
    told = " ".join(sidecar.run("thresholds", "diff").stdout.split())
    assert all("(5 steps); --force overrides it" in shown for shown in (text, told)) and "StepTooLarge: " in told
    sidecar.service.thresholds.empty = True
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
    said = [str(part) for part in group.renderables[:2]]
    assert said[0].endswith("; --force overrides it, but do not: it was worse, or not better")
    assert said[1].endswith("; --force overrides it")


@pytest.mark.parametrize("obstacle", ["", "BrokersShedThemselves"])
def test_a_trial_without_figures_is_told_as_such(sidecar: Sidecar, obstacle: str) -> None:
    """And what keeps the leader from balancing, as nothing is measured until that ends."""
    sidecar.service.thresholds.trial = replace(
        TRIAL, seconds=0.0, imbalance=None, moves_per_hour=None, obstacle=obstacle
    )
    text = " ".join(sidecar.run("thresholds", "show").stdout.split())
    why = f"; it does not balance now: {obstacle}" if obstacle else ""
    assert f"on trial 0 s of 6h 0m: nothing measured yet{why} 2026" in text


COMMANDS: list[tuple[list[str], tuple[str, Any]]] = [
    (["adopt"], ("adopt_thresholds", (None, False, "r", "ann"))),
    (["adopt", "--digest", DIGEST, "--force"], ("adopt_thresholds", (DIGEST, True, "r", "ann"))),
    (["revert"], ("revert_thresholds", (None, "r", "ann"))),
    (["revert", "--digest", DIGEST], ("revert_thresholds", (DIGEST, "r", "ann"))),
]


@pytest.mark.parametrize(("command", "expected"), COMMANDS)
def test_changes(sidecar: Sidecar, command: list[str], expected: tuple[str, Any]) -> None:
    """They reach the service; over TCP without credentials they are refused with the way out."""
    result = sidecar.run("thresholds", *command, *WHO)
    assert result.exit_code == 0, result.output
    assert expected in sidecar.service.calls
    refused = sidecar.run("thresholds", *command, *WHO, to="url")
    assert refused.exit_code == 4 and "unix socket" in refused.stderr
