"""The API reference of the page: the document of this very address, so nothing in it is another release's."""

from __future__ import annotations

import re
import shlex
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.page_world import ServedSidecar
from tests.support.security import Tokens
from tests.ui.conftest import NARROW, Open, findings, sideways, sign_in, view
from tests.ui.served_shop import ServedShop


def routes(document: dict[str, Any]) -> list[str]:
    """`GET /path` of each."""
    return [f"{method.upper()} {path}" for path, item in document["paths"].items() for method in item]


def test_every_route_of_this_address(watched: ServedSidecar, open_page: Open) -> None:
    """No more than it has, and without a request to anywhere else."""
    requests = list[str]()
    page = open_page(watched.url)
    page.on("request", lambda request: requests.append(request.url))
    view(page, "API")
    document = httpx.get(f"{watched.url}/api/v1/openapi.json").json()
    expect(page.locator("details.route")).to_have_count(len(routes(document)))
    paths = page.locator("details.route summary code:first-child").all_text_contents()
    assert sorted(paths) == sorted(routes(document))
    assert "POST /api/v1/brokers/{broker}/drain" not in paths, "without credentials this address changes nothing"
    assert requests and all(url.startswith(watched.url) for url in requests)


@pytest.mark.parametrize("size", [None, NARROW | {"width": 360}], ids=["wide", "phone"])
def test_a_route_with_its_fields_and_an_example(tokens: Tokens, open_page: Open, axe: str, size: Any) -> None:
    """Fields inside fields have their whole path; the example is what a shell takes, and the sidecar accepts it."""
    with ServedShop(tokens=tokens) as served:
        page = open_page(served.url, **({"size": size} if size else {}))
        sign_in(page, tokens, "operator")
        view(page, "API")
        page.get_by_label("Show routes with").fill("/drain")
        expect(page.get_by_role("main").get_by_role("status")).to_have_text("1 route")
        page.locator("details.route summary").click()
        route = page.locator("details.route")
        expect(route).to_contain_text(
            re.compile("Empty a broker and keep it empty until it is uncordoned *Needs role operator.")
        )
        rows = route.get_by_role("region", name="Parameters").get_by_role("row").nth(1)
        expect(rows).to_contain_text("broker required")
        body = route.get_by_role("region", name="Fields of the request")
        expect(body.get_by_role("row").filter(has_text="execute").first).to_contain_text(
            "a dry run, nothing is changed"
        )
        expect(body.get_by_role("row", name="reason")).to_contain_text("string or null")
        answer = route.get_by_role("region", name="Fields of the response")
        expect(answer.get_by_role("row").filter(has_text="moves[].bundle")).to_contain_text("string")
        expect(answer.get_by_role("row").filter(has_text="eta_seconds")).to_contain_text("number or null")
        expect(answer.get_by_role("row").filter(has_text="moves").first).to_contain_text("list of object")
        expect(route).to_contain_text("409: all other brokers are cordoned or drained")
        words = shlex.split(route.locator("pre").inner_text())
        token, form = "Authorization: Bearer $TOKEN", "Content-Type: application/json"
        assert words[:7] == ["curl", "-s", "-H", token, "-H", form, "-d"]
        headers = tokens.headers("operator") | {"Content-Type": "application/json"}
        sent = httpx.post(words[-1], content=words[7], headers=headers)
        assert sent.status_code == 200 and sent.json()["dry_run"] is True
        assert sideways(page) == []
        assert findings(page, axe) == []
