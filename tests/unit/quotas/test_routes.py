"""The routes and commands of quota groups."""

from __future__ import annotations

import asyncio
import io
import json
from dataclasses import replace
from typing import Any, get_args

import httpx
import pytest
import yaml
from pydantic import TypeAdapter
from rich.console import Console

from bundlekeel.cli.output import TableLayout
from bundlekeel.model.codes import Code, explain
from bundlekeel.model.errors import SnapshotError
from bundlekeel.quotas.commands import groups
from bundlekeel.quotas.responses import GroupDetailView, GroupSetView, QuotasView, QuotaWhyView, TransportView
from bundlekeel.quotas.rules.groups import KINDS, QuotaGroup, QuotaLimits
from bundlekeel.quotas.settings import QuotaSettings
from bundlekeel.wiring.openapi import openapi_document
from tests.support.api_routes import roles
from tests.support.apps import create_app
from tests.support.quota_world import QuotaCluster, QuotaSidecar
from tests.support.shop import BROKERS, GROUP, QUOTA_TOPIC, Shop
from tests.support.spied import Spied
from tests.unit.api.test_code_lists import words
from tests.unit.api.test_routes import client
from tests.unit.api.test_s01_reads_and_the_lease import served as running
from tests.unit.cli.test_commands import Sidecar, served, sidecar  # fixtures

__all__ = ["served", "sidecar"]

WHO = {"reason": "r", "by": "ann"}
SET_GROUP = QuotaGroup(
    name="acme", limits=QuotaLimits(publish_messages=500, publish_bytes=1e7), members=("t:acme", "n:shop/o*")
)
BODY = {"members": ["t:acme", "n:shop/o*"], "publish_messages": 500, "publish_bytes": 1e7}


@pytest.mark.parametrize("observed", [False, True])
async def test_views_are_as_documented(observed: bool) -> None:
    """With everything, and before the leader looked."""
    shop = Shop()
    await (shop.open() if observed else shop.lead())
    service = Spied(shop.service)
    views: list[tuple[str, type]] = [("quotas", QuotasView), (f"quotas/{GROUP}", GroupDetailView)]
    if observed:
        views += [
            (f"quotas/{QUOTA_TOPIC.replace('/', '%2F')}/why", QuotaWhyView),
            (f"quotas/{QUOTA_TOPIC}/why?here=true", QuotaWhyView),
        ]
    async with client(create_app(service, mutations=True)) as http:
        for path, model in views:
            answer = await http.get(f"/api/v1/{path}")
            assert answer.status_code == 200, answer.text
            TypeAdapter(model).validate_python(answer.json())
    response = service.asked("quotas.why")
    assert (
        response == [{"name": QUOTA_TOPIC, "here": here} for here in (False, True)][: len(response)]
        and bool(response) == observed
    )


async def test_a_read_of_quotas_is_limited_as_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends in time although the store does not respond."""
    monkeypatch.setattr("bundlekeel.api.off_loop.READ_SECONDS", 0.5)
    follower = QuotaSidecar(QuotaCluster())
    await follower.coordination.start()

    async def hang(_path: str) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(follower.coordination, "read_tree", hang)
    async with running(follower.server(asyncio.get_running_loop())) as http:
        paths = ["quotas", "quotas/acme", "quotas/acme/why"]
        answers = await asyncio.gather(*(http.get(f"/api/v1/{path}") for path in paths))
    follower.publishing.cancel()
    assert [answer.status_code for answer in answers] == [504] * len(paths)


async def test_changes_reach_the_service(http: httpx.AsyncClient, service: Spied) -> None:
    """With person and reason; without a reason they are refused, and where nothing may be changed there is no route."""
    answer = await http.put("/api/v1/quotas/acme", json=BODY | WHO)
    assert answer.status_code == 200 and service.calls == [("quotas.put", {"group": SET_GROUP} | WHO)]
    TypeAdapter(GroupSetView).validate_python(answer.json())
    answer = await http.request("DELETE", "/api/v1/quotas/acme/override", json=WHO)
    assert answer.status_code == 200 and service.calls[-1] == ("quotas.reset", {"name": "acme"} | WHO)
    TypeAdapter(GroupSetView).validate_python(answer.json())
    answer = await http.request("DELETE", "/api/v1/quotas/acme", json=WHO)
    assert answer.status_code == 200 and service.calls[-1] == ("quotas.remove", {"name": "acme"} | WHO)
    for body in (BODY, BODY | WHO | {"publish_messages": "500"}, WHO, BODY | WHO | {"publish": 1}):
        assert (await http.put("/api/v1/quotas/acme", json=body)).status_code == 422
    async with client(create_app(service, mutations=False)) as reading:
        assert (await reading.put("/api/v1/quotas/acme", json=BODY | WHO)).status_code in (404, 405)
    roles_by_route = roles(create_app(service, mutations=True))
    assert (
        roles_by_route["PUT", "/api/v1/quotas/{name}"]
        == roles_by_route["DELETE", "/api/v1/quotas/{name}"]
        == "operator"
    )
    assert roles_by_route["GET", "/api/v1/quotas"] == "viewer"


async def test_what_cannot_be_kept_names_the_field(http: httpx.AsyncClient) -> None:
    """With value and what is allowed."""
    answer = await http.put("/api/v1/quotas/acme", json=BODY | WHO | {"members": ["t:x"]})
    body = answer.json()
    assert (answer.status_code, body["field"], body["value"]) == (422, "members", "t:x") and "acme" in body["allowed"]


@pytest.mark.parametrize("command", [["ls"], ["show", "acme"], ["explain", QUOTA_TOPIC]])
@pytest.mark.parametrize("output", ["table", "wide", "json", "yaml"])
def test_reads(sidecar: Sidecar, command: list[str], output: str) -> None:
    """In every format; JSON and YAML can be read."""
    result = sidecar.run("quota", *command, "-o", output)
    assert result.exit_code == 0, result.output
    read: dict[str, Any] = {"json": json.loads, "yaml": yaml.safe_load}
    assert read.get(output, str.strip)(result.stdout)


def test_what_is_shown(sidecar: Sidecar) -> None:
    """Limits, usage, problems, why rates are left."""
    sidecar.do(sidecar.shop.turns(2))
    text = " ".join(sidecar.run("quota", "ls").stdout.split())
    for part in ("500 msg/s", "100.0%", "10 MB/s", "settings"):
        assert part in text
    text = " ".join(sidecar.run("quota", "show", "acme").stdout.split())
    for part in (QUOTA_TOPIC[:20], BROKERS[1], "500 msg/s"):
        assert part in text
    text = sidecar.run("quota", "explain", QUOTA_TOPIC).stdout
    assert "in quota group acme" in text
    down = TransportView(state="down", detail="not allowed")
    sidecar.service.results["quotas.view"] = lambda view: replace(
        view,
        problems=["quotas.groups.acme.members = 't:nobody': unknown tenant"],
        left={Code.TOPIC_POLICIES_OFF.value: 2},
        transport=down,
        groups=[replace(view.groups[0], usage=None, topics=None)],
    )
    text = " ".join(sidecar.run("quota", "ls").stdout.split())
    for part in ("unknown tenant", "2 rates are not written: TopicPoliciesOff", "–"):
        assert part in text
    assert "the usage that brokers report to each other is not read: down (not allowed)" in text


SIGNED = ["--reason", "r", "--by", "ann"]
SET = ["set", "acme", "--member", "t:acme", "--member", "n:shop/o*"]


def test_changes(sidecar: Sidecar) -> None:
    who, looked = ["--reason", "r", "--by", "ann"], ("quotas.view", {})
    limits = ["--limit", "publish_messages=500", "--limit", "publish_bytes=10MB"]
    result = sidecar.run("quota", *SET, *limits, *who)
    assert result.exit_code == 0, result.output
    assert sidecar.service.calls[-2:] == [("quotas.put", {"group": SET_GROUP} | WHO), looked]
    assert sidecar.run("quota", "reset", "acme", *who).exit_code == 0
    assert sidecar.service.calls[-2:] == [("quotas.reset", {"name": "acme"} | WHO), looked]
    assert sidecar.run("quota", "rm", "acme", *who).exit_code == 0
    assert sidecar.service.calls[-2:] == [("quotas.remove", {"name": "acme"} | WHO), looked]
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
    assert not sidecar.service.asked("quotas.put")


def test_a_kind_twice(sidecar: Sidecar) -> None:
    result = sidecar.run(
        "quota", *SET, "--limit", "publish_bytes=10MB", "--limit", "publish_bytes=1MB", "--reason", "r"
    )
    assert result.exit_code == 2 and "publish_bytes has two rates" in result.stderr
    assert not sidecar.service.asked("quotas.put")


@pytest.mark.parametrize("command", ["set acme --member t:acme --limit publish_bytes=10MB", "rm acme", "reset acme"])
def test_a_change_of_a_group_warns_where_nothing_is_enforced(sidecar: Sidecar, command: str) -> None:
    """Here by the mode. The answer itself is of the group as it was stored, so the warning is on stderr."""
    sidecar.run("quota", "set", "acme", "--member", "t:acme", "--limit", "publish_bytes=1MB", *SIGNED)
    sidecar.run("mode", "recommend", *SIGNED)
    sidecar.do(sidecar.shop.turns())
    result = sidecar.run("quota", *command.split(), *SIGNED)
    assert result.exit_code == 0 and "warning" not in result.stdout
    expected = f"warning: the brokers' rate limits do not change (RecommendOnly: {explain(Code.RECOMMEND_ONLY)})"
    assert result.stderr.startswith(expected) and "docs/operations/quotas.md" in result.stderr


def test_a_change_of_a_group_is_stored_though_the_groups_cannot_be_read(sidecar: Sidecar) -> None:
    """The read only says whether rates change at the brokers."""
    sidecar.service.fail["quotas.view"] = SnapshotError("no picture yet")
    result = sidecar.run("quota", "set", "acme", "--member", "t:acme", "--limit", "publish_bytes=10MB", *SIGNED)
    assert result.exit_code == 0 and result.stdout != ""
    assert result.stderr.startswith("warning: the change is stored, ") and "no picture yet" in result.stderr


def test_a_group_that_was_set_shows_its_limits_as_ls_does(sidecar: Sidecar) -> None:
    """With units; kinds without a limit are left out."""
    output = sidecar.run("quota", "set", "acme", "--member", "t:acme", "--limit", "publish_bytes=10MB", *SIGNED).stdout
    assert output.splitlines()[-1].split() == ["limits", "publish_bytes=10", "MB/s"]


def test_where_there_is_no_quota_group_it_says_what_makes_one(sidecar: Sidecar) -> None:
    """As every other empty list does."""
    shown, file = sidecar.do(sidecar.shop.quotas.view()), io.StringIO()
    for answer in (shown, replace(shown, groups=[])):
        Console(width=80, file=file).print(groups(answer, TableLayout()))
    assert file.getvalue().count("create one with `bundlekeel quota set`") == 1


def test_the_document_lists_enforcers_codes_and_kinds_of_rate() -> None:
    schemas = openapi_document()["components"]["schemas"]
    assert set(words(schemas["TopicView"]["properties"]["codes"])) == set(Code)
    enforcers = words(schemas["QuotasView"]["properties"]["enforcer"])
    assert set(enforcers) == set(get_args(QuotaSettings.model_fields["enforcer"].annotation))
    assert set(words(schemas["TopicView"]["properties"]["held_back"])) == set(KINDS)
