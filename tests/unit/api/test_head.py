"""HEAD: what GET answers, without its body. Monitors and proxies ask so."""

from __future__ import annotations

from typing import Any, cast

import httpx
import pytest

from bundlekeel.api import ApiServer
from bundlekeel.wiring.openapi import openapi_document
from tests.support.apps import create_app
from tests.support.security import Tokens, access_for
from tests.support.shop import Shop
from tests.support.spied import Spied
from tests.unit.api.test_routes import client

ROUTES = ["/api/v1/state", "/api/v1/events", "/api/v1/bundles?limit=1", "/livez", "/readyz", "/metrics", "/ui/", "/"]


@pytest.mark.parametrize("path", ROUTES)
async def test_it_answers_as_get_does(service: Spied, path: str) -> None:
    """The same status and headers over a real connection, which goes on afterwards; a stream does not begin."""
    # The metrics change with each request.
    service.results["render_metrics"] = lambda _: (b"bundlekeel_leader 1.0\n", "text/plain")
    server = ApiServer(cast(Any, service), "127.0.0.1", 0, None)
    async with httpx.AsyncClient(base_url=await server.start(), timeout=5) as http:
        try:
            head = await http.head(path)
            assert (await http.get("/livez")).text == "ok\n"
            async with http.stream("GET", path) as got:
                assert (head.status_code, head.content) == (got.status_code, b"")
                for name in ("content-type", "content-length", "link", "location"):
                    assert head.headers.get(name) == got.headers.get(name)
        finally:
            await server.stop()


async def test_it_needs_the_same_credentials(tokens: Tokens) -> None:
    """No way around them, and no way to change something."""
    async with client(create_app(Shop().service, mutations=True, access=access_for(tokens))) as http:
        assert (await http.head("/api/v1/state")).status_code == 401
        assert (await http.head("/api/v1/state", headers=tokens.headers("viewer"))).status_code == 200
        refused = await http.head("/api/v1/pause", headers=tokens.headers("viewer"))
        assert refused.status_code == 403


def test_the_document_does_not_list_it() -> None:
    """It is what GET is."""
    assert {method for item in openapi_document()["paths"].values() for method in item} == {
        "get", "put", "post", "delete",
    }  # fmt: skip


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    """One a role."""
    return Tokens(tmp_path_factory.mktemp("tokens"))
