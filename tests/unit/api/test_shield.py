"""What a request must pass before any route: Host, Origin, content type, size; and what every answer carries."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import get_type_hints

import httpx
import pytest
from fastapi import Response
from fastapi.routing import iter_route_contexts

from bundlekeel.api.admission import MAX_BODY_BYTES
from bundlekeel.api.problems import KINDS, STATUSES
from bundlekeel.wiring.openapi import openapi_document
from tests.support.apps import create_app
from tests.support.shop import Shop
from tests.unit.api.test_routes import client

READ_ONLY_POSTS = {"/api/v1/plans", "/api/v1/assignments", "/api/v1/load-signals"}


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app as it listens on TCP, with two more names."""
    app = create_app(
        (await Shop().open()).service, mutations=False, allowed_hosts=["10.1.2.3", "keel.example", ".svc.local"]
    )
    async with client(app) as made:
        yield made


async def test_a_page_of_another_origin_cannot_post_nor_see_a_response(http: httpx.AsyncClient) -> None:
    headers = {"Origin": "https://evil.example"}
    assert (await http.post("/api/v1/plans", json={}, headers=headers)).status_code == 403
    read = await http.get("/api/v1/state", headers=headers)
    assert read.status_code == 200 and "access-control-allow-origin" not in read.headers


async def test_large_bodies_are_refused(http: httpx.AsyncClient) -> None:
    """By the announced length, and by what really comes."""
    headers = {"Content-Type": "application/json"}
    big = b"[" + b"1," * MAX_BODY_BYTES + b"1]"
    assert (await http.post("/api/v1/plans", content=big, headers=headers)).status_code == 413

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 10_000

    assert (await http.post("/api/v1/plans", content=chunks(), headers=headers)).status_code == 413


async def test_hosts_of_the_settings_pass(http: httpx.AsyncClient) -> None:
    """Others are named the setting."""
    assert (await http.get("/api/v1/state", headers={"Host": "keel.example:80"})).status_code == 200
    other = await http.get("/api/v1/state", headers={"Host": "evil.example"})
    assert other.status_code == 421 and "allowed_hosts" in other.json()["detail"]


async def test_security_headers_are_everywhere(http: httpx.AsyncClient) -> None:
    """Also on refusals."""
    for host in ("localhost", "evil.example"):
        answer = await http.get("/api/v1/state", headers={"Host": host})
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_without_authentication_nothing_on_tcp_changes_anything(http: httpx.AsyncClient) -> None:
    """The OpenAPI of the TCP app has no other write than dry runs and signals, and the routes are really not there."""
    paths = (await http.get("/api/v1/openapi.json")).json()["paths"]
    writes = {path for path, item in paths.items() if set(item) - {"get", "head"}}
    assert writes == READ_ONLY_POSTS
    full = openapi_document()["paths"]
    for path in {path for path, item in full.items() if set(item) - {"get", "head"}} - READ_ONLY_POSTS:
        method = (set(full[path]) - {"get"}).pop().upper()
        answer = await http.request(method, path.replace("{hash}", "x"), json={"reason": "x", "mode": "act"})
        assert answer.status_code in (404, 405), path
    assert (await http.get("/api/v1/whoami")).json()["mutations"] is False


def test_answers_are_described_without_a_validator_for_each() -> None:
    """Those of FastAPI cost most of the time it takes to make an app, and no answer passes them."""
    contexts = list(iter_route_contexts(create_app(Shop().service, mutations=True).routes))
    assert all(issubclass(get_type_hints(context.endpoint)["return"], Response) for context in contexts)
    assert not any(context.response_field for context in contexts)


def test_the_reference_page_has_every_problem(pytestconfig: pytest.Config) -> None:
    """Each status and type that the API's sources answer with, and no other."""
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (pytestconfig.rootpath / "service/bundlekeel/api").rglob("*.py")
    )
    answered = {(int(status), slug) for status, slug in re.findall(r'problem\(\s*(\d{3}), "([a-z-]+)"', sources)}
    routing = {(404, "not-found"), (405, "method-not-allowed")}
    assert set(KINDS) == answered | {(status, slug) for _, status, slug in STATUSES} | routing
