"""The HTTP routes over a sidecar in memory: responses as documented, problems as problem+json."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest
import structlog
from fastapi import FastAPI
from pydantic import TypeAdapter

from bundlekeel.leader.cycle.plan_responses import PlanSummary, PlanView
from bundlekeel.leader.state.responses import TaskView
from bundlekeel.model.check import Check
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import (
    AdminFault,
    ConfigError,
    Conflict,
    Forbidden,
    LeadershipLost,
    NotFound,
    SnapshotError,
    StoreError,
)
from bundlekeel.model.load import AdvertisedListener
from bundlekeel.pulsar.channel.findings import ChannelFinding
from bundlekeel.pulsar.channel.responses import ChannelSummary, UnitView
from bundlekeel.requests.assignments import AssignmentView
from bundlekeel.requests.where import Place
from bundlekeel.views.journal import JournalRecord
from bundlekeel.views.picture import BrokerView, BundleView, CycleVerdict, OverviewView, Setting, State, WhoAmI, WhyView
from tests.support.apps import create_app
from tests.support.shop import BROKERS, BUNDLE, NOW_MS, TOPIC, Shop
from tests.support.spied import Spied


def client(app: FastAPI) -> httpx.AsyncClient:
    """A client that stays inside the process."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost:8090")


READS: dict[str, Any] = {
    "state": State,
    "whoami": WhoAmI,
    "brokers": list[BrokerView],
    f"brokers/{BROKERS[0]}/why": WhyView,
    "bundles": list[BundleView],
    "bundles/shop/orders/0x00000000_0x10000000/why": WhyView,
    "bundles/persistent%3A%2F%2Fshop%2Forders%2Fa/why": WhyView,
    "verdicts": list[CycleVerdict],
    "journal": list[JournalRecord],
    "settings": list[Setting],
    "plans": list[PlanSummary],
    "tasks": list[TaskView],
    "where?name=shop/orders": list[Place],
    f"where?name={TOPIC}": list[Place],
    "doctor": list[Check],
    "overview?largest=3": OverviewView,
    "channel": ChannelSummary,
    "channel/bundles": list[UnitView],
    "channel/bundles?state=Releasing&limit=1&after=shop": list[UnitView],
    "channel/findings": list[ChannelFinding],
}


@pytest.mark.parametrize("path", READS)
async def test_reads_answer_as_their_model_says(http: httpx.AsyncClient, shop: Shop, path: str) -> None:
    """Also of a cluster in which bundles moved, and of an ownership channel."""
    shop.follow_channel()
    moved = (await http.post("/api/v1/plans", json={"ignore_hit_counts": True})).json()
    await http.post(f"/api/v1/plans/{moved['hash']}/execute", json={"reason": "r", "by": "ann"})
    await shop.turns(2)
    answer = await http.get(f"/api/v1/{path}")
    assert answer.status_code == 200
    TypeAdapter(READS[path]).validate_python(answer.json())


async def test_why_of_a_topic_gets_the_whole_name(http: httpx.AsyncClient, service: Spied) -> None:
    await http.get("/api/v1/bundles/persistent%3A%2F%2Fshop%2Forders%2Fa/why")
    assert service.asked("why") == [{"name": "persistent://shop/orders/a"}]


async def test_the_channel_takes_filters_and_pages(http: httpx.AsyncClient, service: Spied, shop: Shop) -> None:
    shop.follow_channel()
    path = f"/api/v1/channel/bundles?state=Releasing&broker={BROKERS[2]}&namespace=shop/orders&after=a&limit=5"
    (row,) = (await http.get(path)).json()
    assert (row["state"], row["destination"]) == ("Releasing", BROKERS[2])
    entry = {"state": "Releasing", "broker": BROKERS[2], "namespace": "shop/orders", "after": "a", "limit": 5}
    assert ("channel_bundles", entry) in service.calls
    assert len((await http.get("/api/v1/channel/findings?limit=1")).json()) == 1
    refused = await http.get("/api/v1/channel/bundles?state=Sold")
    assert (refused.status_code, refused.json()["field"]) == (422, "state")


@pytest.mark.parametrize("path", ["channel", "channel/bundles", "channel/findings"])
async def test_a_cluster_without_channel_is_a_conflict(http: httpx.AsyncClient, shop: Shop, path: str) -> None:
    """The modular load manager has none: 409 with a sentence."""
    await shop.channel.turn()
    answer = await http.get(f"/api/v1/{path}")
    (why,) = answer.json()["difference"]
    assert answer.status_code == 409 and answer.json()["detail"].startswith(why)
    assert why == "the brokers run the modular load manager, which has no ownership channel"


async def test_bundles_takes_filters(http: httpx.AsyncClient, service: Spied) -> None:
    """Broker, namespace and limit reach the service; the limit is bounded."""
    rows = (await http.get("/api/v1/bundles", params={"namespace": "shop/orders", "limit": 2})).json()
    assert [row["bundle"].rpartition("/")[0] for row in rows] == ["shop/orders"] * 2
    (answer,) = service.asked("bundles")
    assert (answer["broker"], answer["namespace"], answer["limit"]) == (None, "shop/orders", 2)
    assert (await http.get("/api/v1/bundles", params={"limit": 0})).status_code == 422


async def test_a_dry_run_passes_every_override(http: httpx.AsyncClient, service: Spied) -> None:
    """The body becomes a PlanRequest, and the plan can be read again."""
    body = {
        "strategy": "threshold",
        "parameters": {"threshold_percent": 5, "lower_boundary_shedding": True, "excluded_namespaces": ["acme/orders"]},
        "remove_brokers": [BROKERS[2]],
        "add_brokers": ["new-1", "pulsar-broker-4.pulsar:8080", "[fd00::7]:8080"],
        "traffic_scale": 2,
        "ignore_hit_counts": True,
    }
    response = (await http.post("/api/v1/plans", json=body)).json()
    TypeAdapter(PlanView).validate_python(response)
    (request,) = (answer["request"] for answer in service.asked("make_plan"))
    assert (request.strategy, request.remove_brokers, request.traffic_scale) == ("threshold", (BROKERS[2],), 2.0)
    assert list(request.add_brokers) == body["add_brokers"]
    assert request.parameters == body["parameters"]
    assert (await http.get(f"/api/v1/plans/{response['hash']}")).json() == response


async def test_where_by_a_listener(http: httpx.AsyncClient, shop: Shop) -> None:
    external = AdvertisedListener("external", "pulsar://example.com:31000")
    shop.cluster.model.owners[BUNDLE] = replace(shop.cluster.model.owners[BUNDLE], listeners=(external,))
    (row,) = (await http.get("/api/v1/where", params={"name": BUNDLE, "listener": "external"})).json()
    assert (row["service_url"], row["listener"]) == ("pulsar://example.com:31000", "external")
    answer = await http.get("/api/v1/where", params={"name": BUNDLE, "listener": "extern"})
    assert answer.status_code == 422
    assert "it has external" in answer.text and "listener" in answer.text


async def test_assignments_take_one_or_several_names(http: httpx.AsyncClient, service: Spied) -> None:
    """Bundle, topic, namespace, or lists of them; the answer is as documented."""
    bodies: list[tuple[dict[str, Any], list[str]]] = [
        ({"bundle": "shop/orders/0x00000000_0x10000000"}, ["shop/orders/0x00000000_0x10000000"]),
        ({"topic": "persistent://shop/orders/a"}, ["persistent://shop/orders/a"]),
        ({"namespace": "shop/orders"}, ["shop/orders"]),
        ({"topics": [TOPIC, f"{TOPIC}-2"], "bundles": [BUNDLE]}, [BUNDLE, TOPIC, f"{TOPIC}-2"]),
    ]
    for body, names in bodies:
        answer = await http.post("/api/v1/assignments", json=body)
        assert answer.status_code == 200
        TypeAdapter(list[AssignmentView]).validate_python(answer.json())
        assert service.calls[-1] == ("assignments", {"names": names})
    assert (await http.post("/api/v1/assignments", json={"namespace": "shop/nowhere"})).status_code == 404


@pytest.mark.parametrize("body", [{}, {"topic": ""}, {"bundle": 5}, {"topics": []}, {"broker": "b"}, None])
async def test_assignments_of_nothing_are_refused(http: httpx.AsyncClient, body: Any) -> None:
    """A body that names nothing, or something else, says so."""
    answer = await http.post("/api/v1/assignments", json=body)
    assert answer.status_code == 422 and answer.json()["detail"]


async def test_assignments_are_no_mutation(service: Spied) -> None:
    """The route is there without mutations too: it changes nothing."""
    async with client(create_app(service, mutations=False)) as http:
        assert (await http.post("/api/v1/assignments", json={"topic": TOPIC})).status_code == 200


async def test_a_dry_run_needs_no_body(http: httpx.AsyncClient) -> None:
    """Nothing to override is fine."""
    assert (await http.post("/api/v1/plans")).status_code == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"strateggy": "avg"}, "strateggy"),
        ({"traffic_scale": "2"}, "traffic_scale"),
        ({"traffic_scale": 0}, "traffic_scale"),
        ({"ignore_hit_counts": "yes"}, "ignore_hit_counts"),
        ({"remove_brokers": "b"}, "remove_brokers"),
        ({"add_brokers": 2}, "add_brokers"),
        ({"add_brokers": [""]}, "add_brokers.0"),
        ({"add_brokers": ["new-1", "new 2"]}, "add_brokers.1"),
        ({"add_brokers": ["new-1\n"]}, "add_brokers.0"),
        ({"add_brokers": [f"new-{number}" for number in range(101)]}, "add_brokers"),
        ([], "body"),
    ],
)
async def test_a_wrong_body_names_the_field(http: httpx.AsyncClient, body: Any, field: str) -> None:
    """Unknown and mistyped fields are errors, not ignored."""
    answer = await http.post("/api/v1/plans", json=body)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["field"] == field


ERRORS = [
    (NotFound("no such plan"), 404),
    (Conflict("changed", code="changed", difference=["b-1 is gone"]), 409),
    (Forbidden("mode is recommend", code=Code.RECOMMEND_ONLY), 403),
    (ConfigError("wrong", field="strategy", value="x", allowed="avg"), 422),
    (StoreError("suspended"), 503),
    (LeadershipLost("over"), 503),
    (SnapshotError("no picture yet"), 503),
    (AdminFault("broker said 500"), 502),
]


@pytest.mark.parametrize(("error", "status"), ERRORS, ids=lambda item: type(item).__name__)
async def test_errors_become_problems(http: httpx.AsyncClient, service: Spied, error: Exception, status: int) -> None:
    """Every error of the tree has its status and keeps what it says."""
    service.fail["state"] = error
    answer = await http.get("/api/v1/state")
    body = answer.json()
    assert answer.status_code == body["status"] == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert body["detail"] == ("strategy = 'x': wrong" if isinstance(error, ConfigError) else str(error))
    assert body["type"].startswith("urn:bundlekeel:problem:")
    if isinstance(error, Conflict):
        assert (body["code"], body["difference"]) == ("changed", ["b-1 is gone"])
    if isinstance(error, Forbidden):
        assert body["code"] == "RecommendOnly" and "difference" not in body
    if isinstance(error, ConfigError):
        assert (body["field"], body["value"], body["allowed"]) == ("strategy", "x", "avg")
    assert ("retry-after" in answer.headers) == (status == 503)


async def test_an_unexpected_error_shows_no_traceback(http: httpx.AsyncClient, service: Spied) -> None:
    service.fail["state"] = RuntimeError("secret-token-123")
    with structlog.testing.capture_logs() as logged:
        answer = await http.get("/api/v1/state")
    assert [(item["event"], item["path"]) for item in logged] == [("api_unexpected_error", "/api/v1/state")]
    assert answer.status_code == 500
    assert "secret" not in answer.text and "Traceback" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("path", "field", "named"),
    [
        ("/api/v1/journal?since=yesterday", "since", "since = 'yesterday': not a query parameter of /api/v1/journal"),
        ("/api/v1/journal?limit=2&lmit=3", "lmit", "lmit = '3'"),
        ("/api/v1/state?x=", "x", "(allowed: none)"),
        ("/api/v1/summary?since_ms=5&until_ms=2", "since_ms", "since_ms 5 is after until_ms 2"),
    ],
)
async def test_a_query_that_would_be_ignored_is_refused(
    http: httpx.AsyncClient, path: str, field: str, named: str
) -> None:
    """Named with its value and what is allowed; the same rows without it would look like an answer."""
    answer = await http.get(path)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert named in answer.json()["detail"] and answer.json()["allowed"]
    assert (await http.get("/metrics?x=1")).status_code == 200


async def test_what_is_not_here_is_said_with_where_it_is(service: Spied) -> None:
    """The path; and of a route that only the unix socket has, that."""
    async with client(create_app(service, mutations=False)) as http:
        unknown = (await http.get("/api/v1/nope")).json()["detail"]
        assert unknown.startswith("there is no /api/v1/nope;")
        for method, path in (
            ("POST", "/api/v1/pause"), ("PUT", "/api/v1/mode"), ("POST", "/api/v1/plans/abc/execute"),
            ("PUT", "/api/v1/quotas/shop"), ("DELETE", "/api/v1/quotas/shop"),  # GET is here
        ):  # fmt: skip
            answer = await http.request(method, path, json={"reason": "x"})
            assert answer.status_code == 404
            assert f"{method} {path} exists only on the unix socket while `api.auth`" in answer.json()["detail"]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nope", 404), ("DELETE", "/api/v1/state", 405)])
async def test_unknown_routes_are_problems_too(http: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    """No HTML, no other error format."""
    answer = await http.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


async def test_another_method_is_refused_with_those_that_are_allowed(http: httpx.AsyncClient) -> None:
    answer = await http.post("/api/v1/pins/a/b/0x0_0x1", json={"reason": "r"})
    assert (answer.status_code, answer.headers["allow"]) == (405, "DELETE, PUT")
    assert answer.json()["detail"] == "POST is not a method of /api/v1/pins/a/b/0x0_0x1 (allowed: DELETE, PUT)"


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/api/v1/state/"), ("GET", "/api/v1/plans/"), ("PUT", "/api/v1/pins"), ("PUT", "/api/v1/pauses"),
     ("POST", "/api/v1/pause/"), ("DELETE", "/api/v1/exclusions"), ("PUT", "/api/v1/mode/"), ("GET", "/livez/"),
     ("GET", "/api/v1/openapi.json/")],
)  # fmt: skip
async def test_nothing_leads_elsewhere(http: httpx.AsyncClient, method: str, path: str) -> None:
    """No redirect that no document names: a path with or without its slash is another one, and not here."""
    answer = await http.request(method, path, json=None if method == "GET" else {"reason": "r"})
    assert answer.status_code in (404, 405)
    assert answer.headers["content-type"] == "application/problem+json"
    assert "location" not in answer.headers


async def test_an_empty_reason_is_called_empty(http: httpx.AsyncClient) -> None:
    """Not a text of too few characters."""
    answer = await http.post("/api/v1/pause", json={"reason": "", "by": "ann"})
    assert answer.status_code == 422 and answer.json()["detail"] == "reason: it is empty"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("{", "body: not JSON: Expecting property name enclosed in double quotes at 1"),
        ("[]", "body: must be a JSON object"),
        ('{"a": }', "body: not JSON: Expecting value at 6"),
    ],
)
async def test_a_dry_run_takes_a_json_object(http: httpx.AsyncClient, body: str, message: str) -> None:
    """Without the words of the library."""
    answer = await http.post("/api/v1/plans", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["field"], answer.json()["detail"]) == (422, "body", message)
    nothing = await http.post("/api/v1/assignments", json={})
    assert nothing.json()["detail"] == "body = {}: name at least one bundle, topic or namespace"


async def test_nan_is_null(http: httpx.AsyncClient, service: Spied) -> None:
    """JSON has no NaN, and a single one must not cost the answer."""
    service.results["plans"] = lambda _: [{"hash": float("nan")}]
    assert (await http.get("/api/v1/plans")).json() == [{"hash": None}]


async def test_mutations_pass_reason_and_person(http: httpx.AsyncClient, shop: Shop) -> None:
    who = {"reason": "test", "by": "ann"}
    response = (await http.post("/api/v1/plans", json={"ignore_hit_counts": True})).json()
    assert (await http.post(f"/api/v1/plans/{response['hash']}/execute", json=who)).status_code == 202
    assert (await http.post("/api/v1/pause", json={**who, "seconds": 60})).json()["by"] == "ann"
    assert (await http.get("/api/v1/state")).json()["paused"]["until_ms"] == NOW_MS + 60_000
    assert (await http.post("/api/v1/resume", json=who)).status_code == 200
    assert (await http.put("/api/v1/mode", json={**who, "mode": "observe"})).json()["mode"] == "observe"
    state = (await http.get("/api/v1/state")).json()
    assert (state["paused"], state["mode"]) == (None, "observe")
    records = shop.journal.tail(10, kind="request")
    assert [record["what"] for record in records] == [
        f"plan {response['hash']}: 3 moves",
        "pause",
        "resume",
        "mode observe",
    ]
    assert {(record["reason"], record["by"]) for record in records} == {("test", "ann")}


async def test_what_is_left_for_the_leader_says_where_to_follow_it(http: httpx.AsyncClient) -> None:
    """A 202 has the address of its task."""
    who = {"reason": "test", "by": "ann"}
    response = (await http.post("/api/v1/plans", json={"ignore_hit_counts": True})).json()
    done = await http.post(f"/api/v1/plans/{response['hash']}/execute", json=who)
    assert done.headers["location"] == f"/api/v1/tasks/{done.json()['task']}"
    stopped = await http.post(f"{done.headers['location']}/stop", json=who)
    assert (stopped.status_code, stopped.headers["location"]) == (202, done.headers["location"])
    assert (await http.get(stopped.headers["location"])).json()["task"] == done.json()["task"]


async def test_a_plan_that_waits_for_a_second_person_has_no_task_yet() -> None:
    """The response has no address of one."""
    shop = await Shop(review=True).open()
    plan = await shop.plan(ignore_hit_counts=True)
    async with client(create_app(shop.service, mutations=True)) as http:
        waits = await http.post(f"/api/v1/plans/{plan.hash}/execute", json={"reason": "test", "by": "ann"})
    assert waits.status_code == 202 and "location" not in waits.headers
    assert (waits.json()["task"], waits.json()["state"], waits.json()["review"]) == ("", "proposed", plan.hash)


@pytest.mark.parametrize("body", [rb'{"strategy": "\ud800"}', rb'{"\udfff": 1}', rb'{"parameters": {"\ud800": 1}}'])
async def test_s11_half_of_a_pair_of_surrogates_is_an_invalid_value(http: httpx.AsyncClient, body: bytes) -> None:
    """It was status 500 with a traceback, because no UTF-8 answer can repeat it; it goes back escaped."""
    answer = await http.post("/api/v1/plans", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422
    assert answer.json()["type"].endswith("invalid-value")


@pytest.mark.parametrize(
    ("body", "where"),
    [('{"reason":"x"', "line 1 column 14"), ('{"reason": x}', "line 1 column 12"), ("[1]", "it is another JSON value")],
)
async def test_broken_json_is_told_with_its_place(http: httpx.AsyncClient, body: str, where: str) -> None:
    answer = await http.post("/api/v1/pause", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400 and where in answer.json()["detail"]


async def test_probes(http: httpx.AsyncClient, shop: Shop) -> None:
    """200 with ok; with `?verbose` every named check; 503 and the reason when one fails."""
    assert (await http.get("/livez")).text == "ok\n"
    text = (await http.get("/readyz?verbose")).text
    assert text == "[+]metadata store ok\n[+]leadership ok\n[+]picture ok\nok\n"
    shop.cluster.store.freeze()
    answer = await http.get("/readyz")
    assert (answer.status_code, answer.text.splitlines()[-1]) == (503, "failed")
    assert answer.text.startswith("[-]metadata store zk:zk1:2181/pulsar does not answer")


async def test_a_reason_of_a_probe_is_one_line(http: httpx.AsyncClient, service: Spied) -> None:
    """Each line of the body is a check."""
    service.results["ready"] = lambda checks: [Check.failed("leader", "no sidecar\nleads", "")]
    assert (await http.get("/readyz")).text == "[-]leader no sidecar leads\nfailed\n"


async def test_metrics_negotiate(http: httpx.AsyncClient) -> None:
    """The scraper's Accept decides the format."""
    plain = await http.get("/metrics")
    assert plain.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    rich = await http.get("/metrics", headers={"Accept": "application/openmetrics-text;version=1.0.0"})
    assert rich.headers["content-type"].startswith("application/openmetrics-text")
    assert "bundlekeel_leader 1.0" in plain.text and rich.text.endswith("# EOF\n")
