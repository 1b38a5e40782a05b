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
from bundlekeel.wiring.openapi import openapi_document, openapi_text
from dev.api_page import api_page
from tests.support.apps import create_app
from tests.support.shop import Shop
from tests.unit.api.test_routes import client

READ_ONLY_POSTS = {"/api/v1/plans", "/api/v1/assignments"}


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app as it listens on TCP, with two more names."""
    app = create_app(
        (await Shop().open()).service, mutations=False, allowed_hosts=["10.1.2.3", "keel.example", ".svc.local"]
    )
    async with client(app) as made:
        yield made


@pytest.mark.parametrize(
    "host",
    ["localhost:1", "127.0.0.1", "[::1]:8090", "keel.example:80", "KEEL.example", "a.b.svc.local", "10.1.2.3:8090"],
)
async def test_known_hosts_pass(http: httpx.AsyncClient, host: str) -> None:
    """Loopback names, the bound host and configured names, with any port."""
    assert (await http.get("/api/v1/state", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "", "10.9.9.9", "localhost.evil.example", "svc.local", "[::1", "a@b"])
async def test_other_hosts_do_not(http: httpx.AsyncClient, host: str) -> None:
    """A rebound name gets nothing of the API."""
    answer = await http.get("/api/v1/state", headers={"Host": host})
    assert answer.status_code == 421
    assert "allowed_hosts" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
async def test_probes_may_come_by_address(http: httpx.AsyncClient, path: str) -> None:
    """kubelet and Prometheus ask a pod by its address; a foreign name still gets nothing."""
    assert (await http.get(path, headers={"Host": "10.9.9.9:8090"})).status_code == 200
    assert (await http.get(path, headers={"Host": "evil.example"})).status_code == 421


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost:8090"}, 200),
        ({"Origin": "http://localhost:9999"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
    ],
)
async def test_origin_of_writes(http: httpx.AsyncClient, headers: dict[str, str], status: int) -> None:
    """A page of another origin cannot post; a read is not stopped (it cannot see the answer without CORS)."""
    assert (await http.post("/api/v1/plans", json={}, headers=headers)).status_code == status
    read = await http.get("/api/v1/state", headers=headers)
    assert read.status_code == 200
    assert "access-control-allow-origin" not in read.headers


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_only_json_is_taken(http: httpx.AsyncClient, kind: str) -> None:
    """What a plain form can send is refused."""
    assert (await http.post("/api/v1/plans", content="{}", headers={"Content-Type": kind})).status_code == 415


async def test_large_bodies_are_refused(http: httpx.AsyncClient) -> None:
    """By the announced length, and by what really comes."""
    headers = {"Content-Type": "application/json"}
    big = b"[" + b"1," * MAX_BODY_BYTES + b"1]"
    assert (await http.post("/api/v1/plans", content=big, headers=headers)).status_code == 413

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b" " * 10_000

    assert (await http.post("/api/v1/plans", content=chunks(), headers=headers)).status_code == 413


async def test_security_headers_are_everywhere(http: httpx.AsyncClient) -> None:
    """Also on refusals."""
    for host in ("localhost", "evil.example"):
        answer = await http.get("/api/v1/state", headers={"Host": host})
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_without_authentication_nothing_on_tcp_changes_anything(http: httpx.AsyncClient) -> None:
    """The OpenAPI of the TCP app has no other write than the dry run, and the routes are really not there."""
    paths = (await http.get("/api/v1/openapi.json")).json()["paths"]
    writes = {path for path, item in paths.items() if set(item) - {"get", "head"}}
    assert writes == READ_ONLY_POSTS
    full = openapi_document()["paths"]
    for path in {path for path, item in full.items() if set(item) - {"get", "head"}} - READ_ONLY_POSTS:
        method = (set(full[path]) - {"get"}).pop().upper()
        answer = await http.request(method, path.replace("{hash}", "x"), json={"reason": "x", "mode": "act"})
        assert answer.status_code in (404, 405), path
    assert (await http.get("/api/v1/whoami")).json()["mutations"] is False


def test_the_committed_document_does_not_drift(pytestconfig: pytest.Config) -> None:
    """config/openapi.json is what the code says; `python -m dev.docs write` writes it."""
    committed = (pytestconfig.rootpath / "config" / "openapi.json").read_text(encoding="utf-8")
    assert committed == openapi_text()


def test_answers_are_described_without_a_validator_for_each() -> None:
    """Those of FastAPI cost most of the time it takes to make an app, and no answer passes them."""
    contexts = list(iter_route_contexts(create_app(Shop().service, mutations=True).routes))
    assert all(issubclass(get_type_hints(context.endpoint)["return"], Response) for context in contexts)
    assert not any(context.response_field for context in contexts)


def test_every_operation_is_described_once() -> None:
    """Operation ids are unique, every operation has a sentence, and a description does not say that one again."""
    operations = [item for path in openapi_document()["paths"].values() for item in path.values()]
    assert len({item["operationId"] for item in operations}) == len(operations)
    assert all(item["summary"] for item in operations)
    described = [item for item in operations if "description" in item]
    assert described and not [item for item in described if item["summary"] in item["description"]]


def test_the_reference_page_has_every_problem(pytestconfig: pytest.Config) -> None:
    """Each status and type that the API's sources answer with, and no other."""
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (pytestconfig.rootpath / "service/bundlekeel/api").rglob("*.py")
    )
    answered = {(int(status), slug) for status, slug in re.findall(r'problem\(\s*(\d{3}), "([a-z-]+)"', sources)}
    routing = {(404, "not-found"), (405, "method-not-allowed")}
    assert set(KINDS) == answered | {(status, slug) for _, status, slug in STATUSES} | routing


def test_the_reference_page_does_not_drift(pytestconfig: pytest.Config) -> None:
    """docs/reference/api.md is what the code says."""
    assert (pytestconfig.rootpath / "docs" / "reference" / "api.md").read_text(encoding="utf-8") == api_page()
