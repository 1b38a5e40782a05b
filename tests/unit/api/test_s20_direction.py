"""Characters that change the direction of text reach no record, response, log line, notification or terminal."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import structlog
from typer.testing import CliRunner

from bundlekeel.pulsar.formats.external_input import clean
from bundlekeel.records.chain import ChainVerifier
from bundlekeel.records.journal import FileJournal
from bundlekeel.records.metrics import PrometheusTelemetry
from bundlekeel.records.webhooks import post
from bundlekeel.settings.model import Settings
from bundlekeel.wiring.logs import configure_logging
from tests.support.apps import make_app
from tests.support.fake_wiring import FakeWiring
from tests.support.spied import Spied

SIGNS = ["\u202e", "\u2066", "\u200f", "\u2028", "\x9b", "\x1b"]


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("field", ["reason", "by"])
@pytest.mark.parametrize(("method", "path"), [("POST", "pause"), ("POST", "resume"), ("PUT", "mode")])
async def test_s20_a_request_with_such_a_character_is_refused(
    http: httpx.AsyncClient, service: Spied, method: str, path: str, field: str, sign: str
) -> None:
    body = {"reason": "r", "by": "ann"} | ({"mode": "observe"} if path == "mode" else {})
    answer = await http.request(method, f"/api/v1/{path}", json=body | {field: f"{sign}abc"})
    assert (answer.status_code, answer.json()["field"], service.calls) == (422, field, [])
    assert sign not in answer.text


@pytest.mark.parametrize("sign", SIGNS)
async def test_s20_names_in_paths_and_bodies(http: httpx.AsyncClient, service: Spied, sign: str) -> None:
    who = {"reason": "r", "by": "ann"}
    answer = await http.put(f"/api/v1/exclusions/{quote(sign)}", json=who)
    assert (answer.status_code, answer.json()["type"]) == (400, "urn:bundlekeel:problem:wrong-path")
    answer = await http.post("/api/v1/plans", json={"remove_brokers": [f"b{sign}"]})
    assert (answer.status_code, answer.json()["field"], service.calls) == (422, "remove_brokers.0", [])
    assert sign not in answer.text


def test_s20_every_record_is_cleaned(tmp_path: Path) -> None:
    """At any depth, in names and values, in the file and in memory; the hash chain stays whole."""
    path = tmp_path / "journal.jsonl"
    journal = FileJournal(path, telemetry=PrometheusTelemetry())
    text = "".join(SIGNS)
    for _ in range(2):
        journal.append({"kind": "request", "reason": text, "deep": ({text: [text]},), 5: 1.5})
    journal.close()
    cleaned = clean(text)
    assert journal.tail(1) == [{"kind": "request", "reason": cleaned, "deep": [{cleaned: [cleaned]}], "5": 1.5}]
    lines = path.read_bytes().splitlines(keepends=True)
    assert not set(path.read_text(encoding="utf-8")) & set(SIGNS)
    verifier = ChainVerifier()
    assert verifier.read("journal", lines) and verifier.result().lines == 2


@pytest.mark.parametrize("form", ["console", "json"])
def test_s20_log_lines(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events, fields, tracebacks, and lines of libraries."""
    stream, text = io.StringIO(), "".join(SIGNS)
    monkeypatch.setattr("sys.stderr", stream)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    try:
        configure_logging(Settings.model_validate({"logging": {"format": form}}))
        structlog.get_logger().warning(text, field=text, several=[text])
        logging.getLogger("library").error("said %s", text)
        try:
            raise ValueError(text)
        except ValueError:
            structlog.get_logger().exception("failed")
    finally:
        structlog.reset_defaults()
    written = stream.getvalue().replace("\x1b[", "")  # colours
    assert "ValueError" in written and not set(written) & set(SIGNS)


async def test_s20_notifications() -> None:
    """Bodies of webhooks and of events of Kubernetes."""
    sent: list[Any] = []

    def take(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(200)

    text = "".join(SIGNS)
    async with httpx.AsyncClient(transport=httpx.MockTransport(take)) as client:
        await post(client, "http://h/", {"text": text, "details": {text: (text,)}}, seconds=5, headers={})
    assert sent == [{"text": clean(text), "details": {clean(text): [clean(text)]}}]


@pytest.mark.parametrize(
    "words",
    [
        ["journal", "verify", "{}"],
        ["journal", "verify", "--{}"],
        ["{}"],
        ["plan", "--scale", "{}"],
        ["state", "--url", "http://{}:1"],
        ["state", "--socket", "/{}"],
        ["config", "check", "{}"],
        ["where", "{}"],
    ],
)
def test_s20_arguments_that_are_echoed(words: list[str]) -> None:
    text = "x" + "".join(SIGNS)
    result = CliRunner().invoke(make_app(FakeWiring), [word.format(text) for word in words])
    assert result.exit_code and result.output and not set(result.output) & set(SIGNS)


async def test_s20_the_document_of_the_api_refuses_the_same(http: httpx.AsyncClient) -> None:
    document = (await http.get("/api/v1/openapi.json")).json()
    pattern = re.compile(document["components"]["schemas"]["PauseBody"]["properties"]["reason"]["pattern"])
    for code in (*range(0xD800), *range(0xE000, 0x11000)):
        assert bool(pattern.fullmatch(f"a{chr(code)}")) == (clean(chr(code)) == chr(code)), hex(code)
