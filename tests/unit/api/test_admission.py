"""Checks between a route and its endpoint: the role before any body, slots, records of refused attempts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI

from bundlekeel.api.admission import require_roles
from bundlekeel.api.audit import AuditTrail
from bundlekeel.settings.credentials import ROLES
from tests.support.api_routes import Entry, ask, table
from tests.support.apps import create_app
from tests.support.security import SteppedClock, Tokens, access_for
from tests.support.shop import Shop
from tests.support.spied import Spied
from tests.unit.api.test_routes import client

# What a route takes besides a reason, or instead of one.
MORE: dict[str, dict[str, Any]] = {
    "PUT /api/v1/mode": {"mode": "observe"},
    "PUT /api/v1/quotas/{name}": {"members": ["t:shop"]},
    "POST /api/v1/bundles/{bundle:path}/transfer": {"to": "b"},
}
OTHERS = {"POST /api/v1/plans": {}, "POST /api/v1/assignments": {"topic": "a"}}


def body_of(entry: Entry) -> bytes:
    """A body that the route takes."""
    name = f"{entry.method} {entry.path}"
    return json.dumps(OTHERS.get(name, {"reason": "test"} | MORE.get(name, {}))).encode()


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    """One token a role."""
    yield Tokens(tmp_path_factory.mktemp("tokens"))


def variants(path: str) -> dict[str, str]:
    """Return other spellings of a path, as an attacker may use them to reach another route."""
    head, _, last = path.rpartition("/")
    return {
        "plain": path,
        "line feed": path + "%0A",
        "null": path + "%00",
        "line separator": path + "%E2%80%A8",
        "trailing slash": path + "/",
        "two slashes": f"{head}//{last}",
        "leading slashes": "/" + path,
        "encoded slash": path + "%2f",
        "encoded slash inside": f"{head}%2f{last}",
        "dots": f"{head}/../{head.rpartition('/')[2]}/{last}",
        "encoded dots": f"{head}/%2e%2e/{head.rpartition('/')[2]}/{last}",
        "dots behind": path + "/..",
    }


@pytest.mark.parametrize("role", ["", *ROLES])
async def test_no_spelling_of_a_path_gets_further_than_the_plain_one(tokens: Tokens, service: Spied, role: str) -> None:
    app = create_app(service, mutations=True, access=access_for(tokens))
    headers = tokens.headers(role) if role else {}
    entries = [entry for entry in table(app) if entry.path != "/api/v1/events"]
    assert len(entries) > 50
    counts: dict[tuple[Entry, str], int] = {}
    plain_reached: set[str] = set()
    for only_plain in (True, False):
        for entry in entries:
            for name, target in variants(entry.filled("x")).items():
                if (name == "plain") == only_plain:
                    service.calls.clear()
                    counts[entry, name] = await ask(app, entry.method, target, headers=headers, body=body_of(entry))
                    reached = {called for called, _ in service.calls}
                    if only_plain:
                        plain_reached |= reached
                    else:
                        assert reached <= plain_reached, (entry.method, target)
    for (entry, name), status in counts.items():
        if counts[entry, "plain"] in (401, 403):
            assert status in (400, 401, 403, 404, 405), (entry.method, entry.path, name)
        if name in ("line feed", "null", "line separator"):
            assert status == 400, (entry.method, entry.path, name)
        assert status < 500 or status in (502, 503), (entry.method, entry.path, name)
    assert ("set_mode" in plain_reached) == (role == "admin")
    assert ("pause" in plain_reached) == (role in ("operator", "admin"))
    assert ("brokers" in plain_reached) == (role != "")


async def test_an_operator_does_not_set_the_mode_by_a_line_feed(tokens: Tokens, service: Spied) -> None:
    app = create_app(service, mutations=True, access=access_for(tokens))
    statuses = [
        await ask(app, "PUT", target, headers=tokens.headers("operator"), body=b'{"reason": "x", "mode": "observe"}')
        for target in ("/api/v1/mode", "/api/v1/mode%0A")
    ]
    assert (statuses, service.calls) == ([403, 400], [])


async def test_a_role_is_asked_for_before_the_body(tokens: Tokens) -> None:
    app = create_app(Shop().service, mutations=True, access=access_for(tokens, failures_per_minute=1000))
    for entry in table(app):
        if entry.method not in ("GET", "HEAD"):
            for headers in ({}, {"Authorization": "Bearer wrong"}, tokens.headers("viewer")):
                status = await ask(app, entry.method, entry.filled("x"), headers=headers)
                assert status in (401, 403), (entry.method, entry.path)


def nothing() -> None:
    """An endpoint."""


def test_a_route_without_a_role_cannot_be_registered() -> None:
    app = create_app(Shop().service, mutations=True)
    with pytest.raises(TypeError, match="/extra has no role"):
        app.get("/extra")(nothing)
    assert all(entry.route.role in ("anybody", *ROLES) for entry in table(app))


def test_an_app_with_a_route_without_a_role_is_refused() -> None:
    """A router that was made without a role is found when the app is put together."""
    app, router = FastAPI(openapi_url=None, docs_url=None, redoc_url=None), APIRouter()
    router.get("/extra")(nothing)
    app.include_router(router)
    with pytest.raises(TypeError, match="/extra has no role"):
        require_roles(app)


async def slow(app: FastAPI, method: str, path: str, headers: dict[str, str], arrived: asyncio.Event) -> int:
    """A request whose body never comes."""
    options = {"host": "localhost", "content-type": "application/json", "content-length": "1000"} | headers
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in options.items()],
        "client": ("127.0.0.1", 40_001),
    }
    answers: list[int] = []

    async def receive() -> Any:
        arrived.set()
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        answers.extend([message["status"]] if message["type"] == "http.response.start" else [])

    await app(scope, receive, send)
    return answers[0]


@pytest.mark.parametrize("who", ["", "operator"])
async def test_slow_bodies_do_not_keep_an_admin_from_pausing(tokens: Tokens, service: Spied, who: str) -> None:
    """64 of anonymous callers are refused at once and hold nothing; 64 dry runs of an operator fill the slots, but not
    those kept for what changes something."""
    app = create_app(service, mutations=True, access=access_for(tokens))
    async with client(app) as http:
        await http.get("/api/v1/state", headers=tokens.headers("admin"))
        header_values = tokens.headers(who) if who else {}
        await http.get("/api/v1/state", headers=header_values)
        arrived = [asyncio.Event() for _ in range(64)]
        tasks = [asyncio.create_task(slow(app, "POST", "/api/v1/plans", header_values, event)) for event in arrived]
        for task, event in zip(tasks, arrived, strict=True):
            await asyncio.wait({task, asyncio.create_task(event.wait())}, return_when=asyncio.FIRST_COMPLETED)
        paused = await http.post("/api/v1/pause", json={"reason": "stop"}, headers=tokens.headers("admin"))
        read = await http.get("/api/v1/state", headers=tokens.headers("admin"))
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert paused.status_code == 200
    assert read.status_code == (503 if who else 200)
    assert who or set(ended) == {401}


async def test_refused_attempts_are_in_the_journal(tokens: Tokens) -> None:
    """A role too low by its name, missing and wrong credentials by the address; reads and dry runs leave none."""
    records = list[Any]()
    trail = AuditTrail(record=records.append, wall_ms=lambda: 7, boot=SteppedClock().boot)
    app = create_app(Shop().service, mutations=True, access=access_for(tokens), trail=trail)
    async with client(app) as http:
        responses = [
            await http.post("/api/v1/pause", json={"reason": "x", "by": "mallory"}, headers=tokens.headers("viewer")),
            await http.put("/api/v1/mode", json={"reason": "x"}, headers=tokens.headers("operator")),
            await http.delete("/api/v1/pins/a", headers={"Authorization": "Bearer wrong"}),
            await http.post("/api/v1/pause", json={"reason": "x"}),
            await http.post("/api/v1/plans", json={}, headers=tokens.headers("viewer")),
            await http.get("/api/v1/state"),
            await http.get("/api/v1/pause", headers=tokens.headers("viewer")),
        ]
    assert [item.status_code for item in responses] == [403, 403, 401, 401, 403, 401, 403]
    assert [(r["by"], r["role"], r["what"], r["status"], r["attempts"]) for r in records] == [
        ("the-viewer", "viewer", "POST /api/v1/pause", 403, 1),
        ("the-operator", "operator", "PUT /api/v1/mode", 403, 1),
        ("", "", "DELETE /api/v1/pins/a", 401, 1),
        ("", "", "POST /api/v1/pause", 401, 1),
    ]
    assert {r["address"] for r in records} == {"127.0.0.1"} and {r["kind"] for r in records} == {"audit"}
    assert "mallory" not in json.dumps(records) and "wrong" not in json.dumps(records)


async def test_refused_attempts_do_not_flood_the_journal(tokens: Tokens) -> None:
    records, clock = list[Any](), SteppedClock()
    trail = AuditTrail(record=records.append, wall_ms=lambda: 7, boot=clock.boot)
    app = create_app(Shop().service, mutations=True, access=access_for(tokens), trail=trail)
    headers = tokens.headers("viewer")

    async def refused(times: int, path: str = "/api/v1/pause") -> None:
        for _ in range(times):
            assert await ask(app, "POST", path, headers=headers) == 403

    await refused(500)
    await refused(2, "/api/v1/resume")
    clock.now = 61.0
    await refused(1)
    clock.now = 70.0
    await refused(3)
    app.state.admission.audit.write_late()
    app.state.admission.audit.write_late()
    assert [(r["what"].rpartition("/")[2], r["attempts"]) for r in records] == [
        ("pause", 1), ("resume", 1), ("pause", 499), ("resume", 1), ("pause", 1), ("pause", 3),
    ]  # fmt: skip
    records.clear()
    audit = app.state.admission.audit
    for number in range(3000):
        scope = {"method": "POST", "path": "/x", "client": (f"10.0.{number >> 8}.{number & 255}", 1)}
        audit.refused(scope, "/x", 401)
    audit.write_late()
    assert len(records) < 1100 and sum(r["attempts"] for r in records) == 3000


async def test_an_authenticated_mutation_that_is_not_taken_is_recorded(tokens: Tokens) -> None:
    """Too large a body: the name is known, and nothing of the body is."""
    records = list[Any]()
    trail = AuditTrail(record=records.append, wall_ms=lambda: 7, boot=SteppedClock().boot)
    app = create_app(Shop().service, mutations=True, access=access_for(tokens), trail=trail)
    headers = tokens.headers("operator") | {"content-length": "10000000"}
    assert await ask(app, "POST", "/api/v1/plans/5f0c3a1be2d4977a/execute", headers=headers) == 413
    assert [(r["by"], r["status"], r["reason"]) for r in records] == [("the-operator", 413, "")]
