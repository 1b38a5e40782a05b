"""The web page as the server gives it away: which files, with which headers, to whom."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bundlekeel.api.page import CONTENT_SECURITY_POLICY, TYPES
from dev import ui
from tests.support.apps import create_app
from tests.support.security import Tokens, access_for
from tests.support.shop import Shop
from tests.unit.api.test_routes import client


async def test_the_bare_address_leads_to_the_page() -> None:
    """So does the folder without its slash."""
    async with client(create_app(Shop().service, mutations=False)) as http:
        for path in ("/", "/ui"):
            answer = await http.get(path)
            assert (answer.status_code, answer.headers["location"]) == (307, "/ui/")


@pytest.mark.parametrize("name", ["", *TYPES])
async def test_files_come_with_a_strict_policy(name: str) -> None:
    """Nothing but this server's own scripts and styles; with the shield's other headers."""
    async with client(create_app(Shop().service, mutations=False)) as http:
        answer = await http.get(f"/ui/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == TYPES[name or "index.html"]
    policy = answer.headers["content-security-policy"]
    assert policy == CONTENT_SECURITY_POLICY and "unsafe" not in policy and "default-src 'none'" in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize("path", ["/ui/none.js", "/ui/..%2fapp.py", "/ui/a/b", "/ui/built.sha256"])
async def test_nothing_else_is_given_away(path: str) -> None:
    async with client(create_app(Shop().service, mutations=False)) as http:
        answer = await http.get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


async def test_the_page_needs_no_credentials_but_its_data_do(tmp_path_factory: pytest.TempPathFactory) -> None:
    """It asks with the reader's token; nothing but reading it is open."""
    tokens = Tokens(tmp_path_factory.mktemp("tokens"))
    app = create_app(Shop().service, mutations=True, access=access_for(tokens))
    async with client(app) as http:
        assert (await http.get("/")).status_code == 307
        for name in ("", *TYPES):
            assert (await http.get(f"/ui/{name}")).status_code == 200
        assert (await http.post("/ui/", json={})).status_code == 405, "read only, whoever asks"
        for path in ("/api/v1/state", "/api/v1/events", "/api/v1/overview", "/ui/../api/v1/state"):
            assert (await http.get(path)).status_code == 401


def test_the_page_asks_nobody_else() -> None:
    """No address of another server in it, and no script or style inside the page itself."""
    index = (ui.STATIC / "index.html").read_text(encoding="utf-8")
    assert re.findall(r"<script[^>]*>", index) == ['<script type="module" src="page.js">']
    assert "<style" not in index and "style=" not in index and "onclick" not in index.lower()
    for name in ui.FILES:
        text = (ui.STATIC / name).read_text(encoding="utf-8")
        # Names of markup languages, which look like addresses and are never asked.
        addresses = {result for result in re.findall(r"https?://[^\s\"'`)]+", text) if "www.w3.org" not in result}
        assert addresses == set(), name
        assert "localStorage" not in text and "document.cookie" not in text


def test_what_is_committed_is_what_was_built() -> None:
    assert ui.stale() == []


def test_a_change_without_a_build_is_seen(tmp_path: Path) -> None:
    other = tmp_path / "built.sha256"
    assert len(ui.stale(other)) == len(ui.FILES) + 1
    other.write_text(ui.digests().replace("  page.js", "0  page.js"), encoding="utf-8")
    assert ui.stale(other) == ["page.js changed since the page was built"]


def test_the_lock_file_names_no_registry() -> None:
    """Packages are held by their digests alone; where they come from is the machine's matter."""
    lock = (ui.UI / "package-lock.json").read_text(encoding="utf-8")
    assert '"integrity"' in lock and '"resolved"' not in lock
    assert "omit-lockfile-registry-resolved=true" in (ui.UI / ".npmrc").read_text(encoding="utf-8")
