"""Each answer carries an id of its request; a problem has it in its body, and the log line of a defect names it."""

from __future__ import annotations

import httpx
import pytest
import structlog

from bundlekeel.api import ApiServer
from bundlekeel.leader.cycle.plan_responses import PlanView
from bundlekeel.wiring.openapi import openapi_document
from bundlekeel.wiring.peers import HttpPeers
from tests.support.spied import Spied

LOCAL = "127.0.0.1"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/api/v1/state", {}, 200),
        ("/livez", {}, 200),
        ("/metrics", {}, 200),
        ("/", {}, 307),
        ("/api/v1/nope", {}, 404),
        ("/api/v1/journal?limit=0", {}, 422),
        ("/api/v1/state?x=1", {}, 422),
        ("/api/v1/state", {"Host": "evil.example"}, 421),
    ],
)
async def test_every_answer_has_its_own(
    http: httpx.AsyncClient, path: str, headers: dict[str, str], status: int
) -> None:
    """Another one each time; in the header, and of a problem in its body too."""
    answers = [await http.get(path, headers=headers) for _ in range(2)]
    ids = {answer.headers["x-request-id"] for answer in answers}
    assert [answer.status_code for answer in answers] == [status, status] and len(ids) == 2
    if status >= 400:
        assert {answer.json()["request_id"] for answer in answers} == ids


@pytest.mark.parametrize("value", ["7f3c", "A-b_c.d:e/f+g=", "0" * 128])
async def test_one_that_the_request_brings_is_kept(http: httpx.AsyncClient, value: str) -> None:
    """A proxy, or who asks, looks for its own."""
    answer = await http.get("/api/v1/nope", headers={"X-Request-ID": value})
    assert answer.headers["x-request-id"] == answer.json()["request_id"] == value


@pytest.mark.parametrize("value", ["", "a b", "0" * 129, 'x"y', "a\tb", "ä".encode(), "<b>"])
async def test_one_of_another_form_is_replaced(http: httpx.AsyncClient, value: str | bytes) -> None:
    """It ends in the log and in answers."""
    answer = await http.get("/api/v1/state", headers={"X-Request-ID": value})
    assert answer.status_code == 200
    assert len(answer.headers["x-request-id"]) == 32 and answer.headers["x-request-id"].isalnum()


async def test_the_log_line_of_a_defect_names_it(http: httpx.AsyncClient, service: Spied) -> None:
    service.fail["state"] = RuntimeError("secret-token-123")
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logged:
        answer = await http.get("/api/v1/state", headers={"X-Request-ID": "ticket-4711"})
    assert [(item["event"], item["request_id"]) for item in logged] == [("api_unexpected_error", "ticket-4711")]
    assert (answer.status_code, answer.json()["request_id"]) == (500, "ticket-4711")
    assert "ticket-4711" in answer.json()["detail"]
    assert structlog.contextvars.get_contextvars() == {}, "it ends with its request"


async def test_a_follower_passes_it_on_to_the_leader(service: Spied) -> None:
    """One id in the logs of both."""
    server = ApiServer(service, LOCAL, 0, None)
    peers = HttpPeers()
    current = list[str]()

    def watch(plan: PlanView) -> PlanView:
        current.append(structlog.contextvars.get_contextvars()["request_id"])
        return plan

    service.results["make_plan"] = watch
    url = await server.start()
    try:
        with structlog.contextvars.bound_contextvars(request_id="ticket-4711"):
            await peers.make_plan(url, {})
        await peers.make_plan(url, {})
    finally:
        await peers.close()
        await server.stop()
    assert current[0] == "ticket-4711" != current[1]


def test_the_document_declares_it() -> None:
    document = openapi_document()
    answers = [
        (f"{method} {path} {status}", answer.get("headers", {}).get("X-Request-ID"))
        for path, item in document["paths"].items()
        for method, operation in item.items()
        for status, answer in operation["responses"].items()
    ]
    assert [name for name, header in answers if header != {"$ref": "#/components/headers/RequestId"}] == []
    problem = document["components"]["schemas"]["Problem"]
    assert "request_id" in problem["properties"] and "request_id" not in problem["required"]
