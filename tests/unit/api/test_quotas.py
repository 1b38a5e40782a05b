"""The routes and commands of quota groups, against a fake."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import yaml
from pydantic import TypeAdapter

from bundlekeel.api import create_app
from bundlekeel.core.model.errors import ConfigError
from bundlekeel.core.quotas.groups import QuotaGroup, QuotaLimits
from bundlekeel.daemon.answers.quotas import GroupDetailView, GroupSetView, QuotasView, QuotaWhyView
from tests.support.api_routes import roles
from tests.support.fake_quotas import TOPIC
from tests.support.fake_service import FakeService
from tests.unit.cli.test_commands import Sidecar, served, sidecar  # fixtures

__all__ = ["served", "sidecar"]

WHO = {"reason": "r", "by": "ann"}
GROUP = QuotaGroup(
    name="acme", limits=QuotaLimits(publish_messages=500, publish_bytes=1e7), members=("t:acme", "n:b/c*")
)
BODY = {"members": ["t:acme", "n:b/c*"], "publish_messages": 500, "publish_bytes": 1e7}


def client(service: FakeService, *, mutations: bool = True) -> httpx.AsyncClient:
    """Of an app."""
    app = create_app(service, mutations=mutations)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost:8090")


@pytest.mark.parametrize("unseen", [False, True])
async def test_views_are_as_documented(unseen: bool) -> None:
    """With everything, and before the leader looked."""
    service = FakeService()
    service.quotas.unseen = unseen
    views: list[tuple[str, type]] = [
        ("quotas", QuotasView),
        ("quotas/acme", GroupDetailView),
        (f"quotas/{TOPIC.replace('/', '%2F')}/why", QuotaWhyView),
        (f"quotas/{TOPIC}/why", QuotaWhyView),
    ]
    async with client(service) as http:
        for path, model in views:
            answer = await http.get(f"/api/v1/{path}")
            assert answer.status_code == 200, answer.text
            TypeAdapter(model).validate_python(answer.json())
        assert service.calls[-1] == ("why_quota", (TOPIC, False))
        assert (await http.get(f"/api/v1/quotas/{TOPIC}/why?here=true")).status_code == 200
    assert service.calls[-1] == ("why_quota", (TOPIC, True))


async def test_changes_reach_the_service() -> None:
    """With person and reason; without a reason they are refused, and where nothing may be changed there is no route."""
    service = FakeService()
    async with client(service) as http:
        answer = await http.put("/api/v1/quotas/acme", json=BODY | WHO)
        assert answer.status_code == 200 and service.calls[-1] == ("set_quota", (GROUP, "r", "ann"))
        TypeAdapter(GroupSetView).validate_python(answer.json())
        answer = await http.request("DELETE", "/api/v1/quotas/acme", json=WHO)
        assert answer.status_code == 200 and service.calls[-1] == ("remove_quota", ("acme", "r", "ann"))
        answer = await http.request("DELETE", "/api/v1/quotas/acme/override", json=WHO)
        assert answer.status_code == 200 and service.calls[-1] == ("reset_quota", ("acme", "r", "ann"))
        TypeAdapter(GroupSetView).validate_python(answer.json())
        for body in (BODY, BODY | WHO | {"publish_messages": "500"}, WHO, BODY | WHO | {"publish": 1}):
            assert (await http.put("/api/v1/quotas/acme", json=body)).status_code == 422
    async with client(service, mutations=False) as http:
        assert (await http.put("/api/v1/quotas/acme", json=BODY | WHO)).status_code in (404, 405)
    known = roles(create_app(service, mutations=True))
    assert known["PUT", "/api/v1/quotas/{name}"] == known["DELETE", "/api/v1/quotas/{name}"] == "operator"
    assert known["GET", "/api/v1/quotas"] == "viewer"


async def test_what_cannot_be_kept_names_the_field() -> None:
    """With value and what is allowed."""
    service = FakeService()
    where = "members"
    service.fail["set_quota"] = ConfigError("unknown tenant", field=where, value="t:x", allowed="acme, b")
    async with client(service) as http:
        answer = await http.put("/api/v1/quotas/acme", json=BODY | WHO)
    told = answer.json()
    assert (answer.status_code, told["field"], told["value"], told["allowed"]) == (422, where, "t:x", "acme, b")


@pytest.mark.parametrize("command", [["ls"], ["show", "acme"], ["explain", TOPIC]])
@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_reads(sidecar: Sidecar, command: list[str], output: str) -> None:
    """In every format; JSON and YAML can be read."""
    result = sidecar.run("quota", *command, "-o", output)
    assert result.exit_code == 0, result.output
    read: dict[str, Any] = {"json": json.loads, "yaml": yaml.safe_load}
    assert read.get(output, str.strip)(result.stdout)


def test_what_is_shown(sidecar: Sidecar) -> None:
    """Limits, usage, defects, problems, why rates are left."""
    text = " ".join(sidecar.run("quota", "ls").stdout.split())
    for part in ("500 msg/s", "480 msg/s", "96.0%", "9.5 MB/s", "DispatchNotEnforced", "unknown tenant"):
        assert part in text
    assert "2 rates are not written: TopicPoliciesOff" in text
    assert "the usage that brokers report to each other is not read: down (not allowed)" in text
    text = " ".join(sidecar.run("quota", "show", "acme").stdout.split())
    for part in (
        TOPIC[:20],
        "b2:8080 70 msg/s 1.4 MB/s",
        "44 msg/s",
        "11 msg/s",
        "yes",
        "BudgetOfRates",
        "413 msg/s",
        "b9:6650 (gone)",
        "1m 11s",
        "1h 0m",
    ):
        assert part in text
    text = sidecar.run("quota", "explain", TOPIC).stdout
    assert "in quota group acme" in text and "BudgetOfRates" in text
    sidecar.service.quotas.unseen = True
    assert "–" in sidecar.run("quota", "ls").stdout


SET = ["set", "acme", "--member", "t:acme", "--member", "n:b/c*"]


def test_changes(sidecar: Sidecar) -> None:
    """They reach the service; over TCP without credentials they are refused with the way out."""
    who, looked = ["--reason", "r", "--by", "ann"], ("quotas", None)
    limits = ["--limit", "publish_messages=500", "--limit", "publish_bytes=10MB"]
    result = sidecar.run("quota", *SET, *limits, *who)
    assert result.exit_code == 0, result.output
    assert sidecar.service.calls[-2:] == [("set_quota", (GROUP, "r", "ann")), looked]
    assert sidecar.run("quota", "rm", "acme", *who).exit_code == 0
    assert sidecar.service.calls[-2:] == [("remove_quota", ("acme", "r", "ann")), looked]
    assert sidecar.run("quota", "reset", "acme", *who).exit_code == 0
    assert sidecar.service.calls[-2:] == [("reset_quota", ("acme", "r", "ann")), looked]
    refused = sidecar.run("quota", "rm", "acme", *who, to="url")
    assert refused.exit_code == 4 and "unix socket" in refused.stderr


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        ("publish=5", "is not a kind"),
        ("publish_bytes=10 parsecs", "not a number of bytes"),
        ("publish_messages=many", "not a number"),
        ("publish_messages=nan", "not a rate"),
        ("dispatch_messages=inf", "not a rate"),
        ("publish_bytes=nan", "not a number of bytes"),
        (f"publish_bytes={'9' * 400}", "not a number of bytes"),
    ],
)
def test_limits_that_are_none(sidecar: Sidecar, limit: str, words: str) -> None:
    """A message with what is allowed, and nothing is sent."""
    result = sidecar.run("quota", *SET, "--limit", limit, "--reason", "r")
    assert result.exit_code == 2 and words in result.stderr
    assert not [call for call in sidecar.service.calls if call[0] == "set_quota"]


def test_a_kind_twice(sidecar: Sidecar) -> None:
    """Nobody knows which one is meant."""
    result = sidecar.run(
        "quota", *SET, "--limit", "publish_bytes=10MB", "--limit", "publish_bytes=1MB", "--reason", "r"
    )
    assert result.exit_code == 2 and "publish_bytes is given twice" in result.stderr
    assert not [call for call in sidecar.service.calls if call[0] == "set_quota"]
