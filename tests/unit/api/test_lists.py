"""Lists with a limit: nothing is cut without a sign, and the pages together are the whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from bundlekeel.model.response_fields import Json
from bundlekeel.pulsar.channel.findings import FindingCode
from tests.support.apps import create_app
from tests.support.shop import BROKERS, Shop

# Two of them in one millisecond, on the border of pages of two.
RECORDS: list[Json] = [
    {"kind": "settings", "wall_ms": at, "sentence": str(number)} for number, at in enumerate((1, 5, 5, 7, 9))
]


@pytest.fixture
def http(shop: Shop) -> httpx.AsyncClient:
    """A client of the reads. There are several findings, of one code without a bundle."""
    shop.follow_channel()
    results = shop.channel.findings()[0]
    lost = [replace(results, code=FindingCode.OWNER_UNREACHABLE, bundle="", brokers=(broker,)) for broker in BROKERS]
    shop.channel._note([results, replace(results, bundle=f"{results.bundle}0"), *lost])
    for record in RECORDS:
        shop.journal.append(record)
    app = create_app(shop.service, mutations=False)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost:8090")


async def followed(http: httpx.AsyncClient, address: str) -> list[list[Any]]:
    """All pages by their links; each link works in the client that has the first answer."""
    pages = list[list[Any]]()
    while address:
        answer = await http.get(address)
        assert answer.status_code == 200, answer.text
        pages.append(answer.json())
        address = answer.links.get("next", {}).get("url", "")
        assert len(pages) < 20
    return pages


@pytest.mark.parametrize("path", ["bundles", "channel/bundles", "channel/findings"])
@pytest.mark.parametrize("limit", [1, 2, 5, 50])
async def test_pages_together_are_the_list(http: httpx.AsyncClient, path: str, limit: int) -> None:
    """In its order, each row once."""
    whole = (await http.get(f"/api/v1/{path}")).json()
    pages = await followed(http, f"/api/v1/{path}?limit={limit}")
    assert [row for page in pages for row in page] == whole and len(whole) > 2
    assert len(pages) == len(whole) // limit + 1


async def test_a_page_keeps_what_was_asked_for(http: httpx.AsyncClient) -> None:
    """The link has the filters of the request; an answer that is not full has none."""
    pages = await followed(http, f"/api/v1/bundles?limit=2&broker={BROKERS[0]}")
    assert {row["broker"] for page in pages for row in page} == {BROKERS[0]} and len(pages) > 2
    assert "link" not in (await http.get("/api/v1/bundles?limit=500")).headers


async def test_the_end_of_a_time_is_in_it(http: httpx.AsyncClient) -> None:
    """`since_ms` and `until_ms` both: records of that millisecond are answered."""
    answer = await http.get("/api/v1/journal?kind=settings&since_ms=5&until_ms=7")
    assert [row["wall_ms"] for row in answer.json()] == [5, 5, 7]


@pytest.mark.parametrize("limit", [2, 3, 4])
async def test_older_pages_lose_no_record_of_a_millisecond(http: httpx.AsyncClient, limit: int) -> None:
    pages = await followed(http, f"/api/v1/journal?kind=settings&limit={limit}")
    assert {row["sentence"] for page in pages for row in page} == {"0", "1", "2", "3", "4"}
    assert pages[0] == RECORDS[-limit:]


async def test_a_bundle_that_is_gone_is_no_place_to_go_on(http: httpx.AsyncClient) -> None:
    answer = await http.get("/api/v1/bundles?after=shop/orders/0x00000000_0x00000001")
    assert answer.status_code == 404 and "begin again without `after`" in answer.json()["detail"]
