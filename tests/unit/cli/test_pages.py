"""Lists that are longer than a page: the command line asks for one page after the other."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from bundlekeel.cli.client import PAGE_ROWS, ApiAddress, Client

BUNDLES = [{"bundle": f"b{number:04d}"} for number in range(2500)]
# Three records a millisecond.
RECORDS = [{"wall_ms": number // 3, "text": str(number)} for number in range(2500)]


class Pages(Client):
    """Answers as the API does, and keeps the limits that were asked for."""

    def __init__(self) -> None:
        super().__init__(ApiAddress(url="http://localhost:1"))
        self.limits: list[int] = []

    def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        url = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        query |= {name: str(value) for name, value in more.get("params", {}).items()}
        limit = int(query["limit"])
        self.limits.append(limit)
        if url.path.endswith("bundles"):
            rows = [row for row in BUNDLES if row["bundle"] > query.get("after", "")][:limit]
            following = {"after": rows[-1]["bundle"]}
        else:
            rows = [row for row in RECORDS if int(row["wall_ms"]) <= int(query.get("until_ms", "9999"))][-limit:]
            following = {"until_ms": str(rows[0]["wall_ms"])}
        headers = (
            {"Link": f'<{url.path}?{urlencode({**query, **following})}>; rel="next"'} if len(rows) == limit else {}
        )
        return httpx.Response(200, json=rows, headers=headers, request=httpx.Request(method, f"http://localhost{path}"))


@pytest.mark.parametrize("limit", [10, 1000, 2200, 1_000_000])
def test_s01_bundles_come_page_by_page(limit: int) -> None:
    """In their order, each once, and no page has more rows than the API allows."""
    client = Pages()
    assert client.rows("bundles", limit=limit) == BUNDLES[:limit]
    assert max(client.limits) <= PAGE_ROWS


@pytest.mark.parametrize("limit", [10, 1000, 2200, 10_000])
def test_s01_records_come_page_by_page_back_in_time(limit: int) -> None:
    """Pages share a millisecond, whose records come once."""
    assert Pages().rows("journal", limit=limit) == RECORDS[-limit:]
