"""Permissions over TCP: 401, 403 and 429, tokens and JWTs, reload, and the name in the journal."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import structlog
from fastapi import FastAPI
from structlog.testing import CapturingLoggerFactory
from typer.testing import CliRunner

from bundlekeel.api.admission import SAFE_METHODS
from bundlekeel.api.audit import AuditTrail
from bundlekeel.model.errors import ConfigError
from bundlekeel.settings.credentials import ROLES, TokensFile, new_token, read_lines
from tests.support.api_routes import roles, table
from tests.support.apps import create_app, make_app
from tests.support.contracts.admin import Recorder
from tests.support.fake_wiring import FakeWiring
from tests.support.security import Issuer, Tokens, access_for
from tests.support.shop import Shop
from tests.support.spied import Spied
from tests.unit.api.test_routes import client

REASON = {"reason": "test", "by": "mallory"}
DRY_RUNS = ("/api/v1/plans", "/api/v1/assignments", "/api/v1/load-signals")


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    """One token a role."""
    return Tokens(tmp_path_factory.mktemp("tokens"))


@pytest.fixture
def tokens(issuer: Tokens) -> Iterator[Tokens]:
    issuer.write(*ROLES)
    yield issuer
    issuer.write(*ROLES)


HASH = "5f0c3a1be2d4977a"


def guarded(tokens: Tokens | None, issuer: Issuer | None = None, **more: Any) -> FastAPI:
    """The TCP app with credentials asked for."""
    service = more.pop("service", None) or Shop().service
    trail = more.pop("trail", None)
    return create_app(service, mutations=True, access=access_for(tokens, issuer, **more), trail=trail)


def operations(app: FastAPI) -> list[tuple[str, str]]:
    """Every method and path of the OpenAPI document, parameters filled in."""
    results = []
    for path, methods in app.openapi()["paths"].items():
        filled = re.sub(r"\{[a-z]+\}", HASH, path)
        results += [
            (method.upper(), filled) for method in methods if method in ("get", "put", "post", "delete", "patch")
        ]
    return results


async def test_every_route_asks_for_credentials(tokens: Tokens, service: Spied) -> None:
    """No route of /api/v1 answers without; probes and metrics do. What only the OpenAPI knows is not forgotten."""
    app = guarded(tokens, service=service)
    async with client(app) as http:
        for method, path in operations(app):
            answer = await http.request(method, path, json={} if method != "GET" else None)
            if path in ("/livez", "/readyz", "/metrics"):
                assert answer.status_code == 200
            else:
                assert answer.status_code == 401, (method, path)
                assert answer.headers["www-authenticate"].startswith("Bearer")
                assert answer.headers["content-type"] == "application/problem+json"
        assert (await http.get("/api/v1/openapi.json")).status_code == 401
        assert (await http.get("/api/v1/none")).status_code == 401, "nor does it say which routes there are"


def no_reads(app: FastAPI) -> list[tuple[str, str]]:
    """Return every method and path of the app's routes that can change something, also undocumented ones."""
    result = [(entry.method, entry.filled(HASH)) for entry in table(app) if entry.method not in SAFE_METHODS]
    assert set(result) >= {item for item in operations(app) if item[0] != "GET"}
    return result


async def test_every_route_that_is_no_read_refuses_a_viewer(tokens: Tokens, service: Spied) -> None:
    """401 without credentials and 403 for a viewer, dry runs too, and nothing is reached; the mode is 403 for an
    operator too."""
    app = guarded(tokens, service=service, anonymous_reads=True)
    async with client(app) as http:
        for method, path in no_reads(app):
            answer = await http.request(method, path, json=REASON)
            assert answer.status_code == 401, (method, path)
            answer = await http.request(method, path, json=REASON, headers=tokens.headers("viewer"))
            assert answer.status_code == 403, (method, path)
            assert "the-viewer" in answer.json()["detail"]
        body = REASON | {"mode": "observe"}
        as_operator = await http.put("/api/v1/mode", json=body, headers=tokens.headers("operator"))
        as_admin = await http.put("/api/v1/mode", json=body, headers=tokens.headers("admin"))
        assert (as_operator.status_code, as_admin.status_code) == (403, 200)
    assert [name for name, _ in service.calls] == ["set_mode"]


async def test_roles_include_those_below(tokens: Tokens, service: Spied) -> None:
    """A viewer reads, an operator makes dry runs and pauses as well, an admin everything."""
    for role, allowed in (("viewer", 1), ("operator", 3), ("admin", 4)):
        async with client(guarded(tokens, service=service)) as http:
            responses = [
                await http.get("/api/v1/state", headers=tokens.headers(role)),
                await http.post("/api/v1/plans", json={}, headers=tokens.headers(role)),
                await http.post("/api/v1/pause", json=REASON, headers=tokens.headers(role)),
                await http.put("/api/v1/mode", json=REASON | {"mode": "observe"}, headers=tokens.headers(role)),
            ]
            assert [item.status_code for item in responses] == [200] * allowed + [403] * (4 - allowed)
            response = (await http.get("/api/v1/whoami", headers=tokens.headers(role))).json()
            assert (response["you"], response["your_role"]) == (f"the-{role}", role)
            assert response["mutations"] == (role != "viewer")


async def test_anonymous_reads(tokens: Tokens) -> None:
    """GET without credentials when allowed; dry runs and mutations still ask, and wrong credentials are still wrong."""
    async with client(guarded(tokens, anonymous_reads=True)) as http:
        assert (await http.get("/api/v1/state")).status_code == 200
        response = (await http.get("/api/v1/whoami")).json()
        assert (response["you"], response["your_role"], response["mutations"]) == ("", "viewer", False)
        assert (await http.post("/api/v1/plans", json={})).status_code == 401
        assert (await http.post("/api/v1/pause", json=REASON)).status_code == 401
        assert (await http.get("/api/v1/state", headers={"Authorization": "Bearer x"})).status_code == 401


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic YTpi", "bk.the-admin.x", "Bearer bk.the-admin.", "Bearer bk..",
     "Bearer bk.nobody.x", "Bearer " + "x" * 20_000, "Bearer ..",
     "Bearer eyJ.eyJ.x", "Bearer bk.the-admin." + "A" * 43],
)  # fmt: skip
async def test_wrong_credentials(tokens: Tokens, tmp_path: Path, header: str) -> None:
    telemetry = Recorder()
    async with client(guarded(tokens, Issuer(tmp_path), telemetry=telemetry)) as http:
        answer = await http.get("/api/v1/state", headers={"Authorization": header})
    assert answer.status_code == 401 and "invalid_token" in answer.headers["www-authenticate"]
    assert telemetry.total("api_refusals_total", code="401") == 1


async def test_the_name_in_a_body_does_not_count(tokens: Tokens, service: Spied) -> None:
    """`by` is who authenticated, for the service and for the journal; the reason is kept."""
    records = list[Any]()
    app = guarded(tokens, service=service, trail=AuditTrail(record=records.append, wall_ms=lambda: 7, boot=lambda: 0.0))
    async with client(app) as http:
        for body in (REASON, {"reason": "test"}):
            assert (await http.post("/api/v1/pause", json=body, headers=tokens.headers("operator"))).status_code == 200
        refused = await http.post("/api/v1/pause", json={"by": "mallory"}, headers=tokens.headers("operator"))
        assert refused.status_code == 422
        await http.post("/api/v1/plans", json={}, headers=tokens.headers("operator"))
    assert service.asked("pause") == [{"reason": "test", "by": "the-operator", "seconds": None}] * 2
    assert [(r["by"], r["role"], r["reason"], r["status"]) for r in records] == [
        ("the-operator", "operator", "test", 200),
        ("the-operator", "operator", "test", 200),
        ("the-operator", "operator", "", 422),
    ], "every mutation, whatever came of it; a dry run is none"
    assert {r["kind"] for r in records} == {"audit"} and {r["wall_ms"] for r in records} == {7}
    assert "mallory" not in json.dumps(records)


async def test_every_mutation_signs_with_the_authenticated_name(tokens: Tokens, service: Spied) -> None:
    app = guarded(tokens, service=service)
    async with client(app) as http:
        await http.post("/api/v1/plans", json={}, headers=tokens.headers("admin"))
        for method, path in operations(app):
            if method != "GET" and path not in DRY_RUNS:
                await http.request(
                    method, f"{path}?by=mallory", json=REASON | {"mode": "observe"}, headers=tokens.headers("admin")
                )
    assert "mallory" not in str(service.calls)


# FastAPI's own parser reads more encodings than UTF-8, and JSON that is not an object.
OTHERS = {
    "byte order mark": lambda text: text.encode("utf-8-sig"),
    "utf-16": lambda text: text.encode("utf-16"),
    "utf-16-le": lambda text: text.encode("utf-16-le"),
    "utf-16-be": lambda text: text.encode("utf-16-be"),
    "utf-32": lambda text: text.encode("utf-32"),
    "utf-32-le": lambda text: text.encode("utf-32-le"),
    "NaN": lambda text: (text[:-1] + ', "seconds": NaN}').encode(),
    "half a pair": lambda text: (text[:-1] + r', "more": "\ud800"}').encode(),
    "a list": lambda text: f"[{text}]".encode(),
    "nothing": lambda text: b"null",
}


@pytest.mark.parametrize("who", ["admin", ""], ids=["tcp", "socket"])
async def test_what_cannot_be_signed_is_not_passed_on(tokens: Tokens, service: Spied, who: str) -> None:
    """Rule: a body that the routes can read and the signer cannot is refused: it would carry a forged `by`."""
    records = list[Any]()
    trail = AuditTrail(record=records.append, wall_ms=lambda: 7, boot=lambda: 0.0)
    app = guarded(tokens, service=service, trail=trail) if who else over_socket(service, trail)
    headers = {"Content-Type": "application/json"} | (tokens.headers(who) if who else {})
    mutations = [item for item in no_reads(app) if item[1] not in DRY_RUNS]
    async with client(app) as http:
        for method, path in mutations:
            for name, encoded in OTHERS.items():
                body = encoded(json.dumps(REASON | {"mode": "observe", "execute": True}))
                answer = await http.request(method, path, content=body, headers=headers)
                assert answer.status_code == 400, (name, method, path)
                assert answer.json()["type"] == "urn:bundlekeel:problem:not-an-object"
    assert [record["status"] for record in records] == [400] * len(mutations) * len(OTHERS)
    assert {record["by"] for record in records} == {"the-admin" if who else "unix socket"}
    assert service.calls == []


async def test_nobody_approves_his_own_proposal_in_another_encoding(tokens: Tokens, service: Spied) -> None:
    """Rule: approval by a second operator depends on the name in the body, so only the signed one may reach it."""
    headers = tokens.headers("operator") | {"Content-Type": "application/json"}
    async with client(guarded(tokens, service=service)) as http:
        path = f"/api/v1/reviews/{HASH}/approve"
        for encoding in ("utf-8-sig", "utf-16", "utf-32"):
            forged = json.dumps({"reason": "fine", "by": "somebody-else"}).encode(encoding)
            assert (await http.post(path, content=forged, headers=headers)).status_code == 400
        document = json.dumps({"reason": "fine", "by": "somebody-else"}, ensure_ascii=False).encode()
        assert (await http.post(path, content=document, headers=headers)).status_code == 404
    assert service.calls == [("requests.approve", {"id_": HASH, "reason": "fine", "by": "the-operator"})]


@pytest.mark.parametrize("who", ["operator", ""])
async def test_the_reason_of_an_end_may_stand_in_its_query(
    tokens: Tokens, service: Spied, shop: Shop, who: str
) -> None:
    """Clients and proxies that know no body of a DELETE; over TCP with the name of the credentials, in the journal
    too. A body comes first; without either the reason is missing."""
    records = list[Any]()
    exclude = partial(shop.service.requests.exclude, "t:acme", seconds=None, reason="r", by="bob")
    await exclude()
    trail = AuditTrail(record=records.append, wall_ms=lambda: 7, boot=lambda: 0.0)
    app = guarded(tokens, service=service, trail=trail) if who else over_socket(service, trail)
    headers = tokens.headers(who) if who else {}
    path = "/api/v1/exclusions/t:acme"
    async with client(app) as http:
        assert (await http.delete(path, params={"reason": "over"}, headers=headers)).status_code == 200
        name = "the-operator" if who else "unix socket"
        assert service.calls[-1] == ("requests.include", {"pattern": "t:acme", "reason": "over", "by": name})
        assert (records[-1]["reason"], records[-1]["by"]) == ("over", name)
        await exclude()
        body = {"reason": "in the body"}
        assert (await http.request("DELETE", f"{path}?reason=no", json=body, headers=headers)).status_code == 200
        assert service.calls[-1][1]["reason"] == records[-1]["reason"] == "in the body"
        for query in ("", "?reason=", "?reason=%20", "?by=bob&reason=x"):
            assert (await http.delete(f"{path}{query}", headers=headers)).status_code == 422
        response = (await http.delete(path, headers=headers)).json()
        assert (response["field"], response["detail"]) == ("reason", "reason: it is missing")


def over_socket(service: Any, trail: AuditTrail) -> FastAPI:
    """The app of the unix socket."""
    return create_app(service, mutations=True, trail=trail)


async def test_the_socket_is_its_owners(service: Spied) -> None:
    """The app of the unix socket asks for nothing; the name is what its caller says, and that is written down."""
    records = list[Any]()
    app = over_socket(service, AuditTrail(record=records.append, wall_ms=lambda: 7, boot=lambda: 0.0))
    async with client(app) as http:
        assert (await http.post("/api/v1/pause", json={"reason": "x", "by": "root"})).status_code == 200
        assert (await http.get("/api/v1/whoami")).json()["your_role"] == "admin"
    assert [(r["by"], r["role"], r["what"]) for r in records] == [("root", "admin", "POST /api/v1/pause")]


async def test_an_error_of_ours_is_written_down_too(tokens: Tokens, service: Spied) -> None:
    """A mutation that fails unexpectedly is in the journal as 500."""
    records = list[Any]()
    service.fail["pause"] = RuntimeError("boom")
    app = guarded(tokens, service=service, trail=AuditTrail(record=records.append, wall_ms=lambda: 7, boot=lambda: 0.0))
    async with client(app) as http:
        assert (await http.post("/api/v1/pause", json=REASON, headers=tokens.headers("admin"))).status_code == 500
    assert [r["status"] for r in records] == [500]


async def test_guesses_at_once_are_limited_as_well(tokens: Tokens) -> None:
    app = guarded(tokens, failures_per_minute=3)
    async with client(app) as http:
        wrong = [{"Authorization": f"Bearer bk.the-admin.{n}"} for n in range(20)]
        answers = await asyncio.gather(*(http.get("/api/v1/state", headers=item) for item in wrong))
    assert sorted(item.status_code for item in answers) == [401] * 3 + [429] * 17


async def test_tokens_are_read_again_when_the_file_changes(tokens: Tokens) -> None:
    async with client(guarded(tokens, failures_per_minute=1000)) as http:

        async def status(role: str) -> int:
            return (await http.get("/api/v1/state", headers=tokens.headers(role))).status_code

        assert [await status(role) for role in ROLES] == [200, 200, 200]
        tokens.write("admin")
        assert [await status(role) for role in ROLES] == [401, 401, 200]
        tokens.write("viewer", also="what is this?\n")
        assert [await status(role) for role in ROLES] == [401, 401, 200]
        fresh = tokens.path.with_name("fresh")
        fresh.write_text(tokens.lines["operator"] + "\n")
        fresh.replace(tokens.path)
        assert [await status(role) for role in ROLES] == [401, 200, 401]
        tokens.path.unlink()
        assert [await status(role) for role in ROLES] == [401, 401, 401]
        tokens.write("viewer")
        assert await status("viewer") == 200


def test_a_token_is_kept_as_hash_only(tokens: Tokens) -> None:
    token, line = new_token("bob", "operator")
    secret = token.rpartition(".")[2]
    assert secret not in line and len(secret) >= 43
    other, second = new_token("bob", "viewer")
    tokens.write(also=f"{line}\n{second}\n")
    file = TokensFile(tokens.path)
    assert file.recall(token) is None
    result = file.check(token)
    assert result is not None and (result.name, result.role) == ("bob", "operator") and file.recall(token) == result
    assert (file.check(other) or result).role == "viewer"
    assert file.check(token + "x") is None and file.check(f"bk.eve.{secret}") is None
    assert secret not in str(vars(file)) and token not in str(vars(file))


@pytest.mark.parametrize(
    "line",
    ["alice", "alice admin", "alice boss scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA", "a b c d",
     "alice admin scrypt$1$8$1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA",
     "alice admin scrypt$1048576$8$1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA",
     "alice admin scrypt$16384$8$1$AA$AAAAAAAAAAAAAAAAAAAAAA", "alice admin bk.alice.secret-canary",
     "al.ice admin scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA"],
)  # fmt: skip
def test_a_wrong_line_is_refused_by_its_number(line: str) -> None:
    with pytest.raises(ConfigError, match="line 2") as error:
        read_lines(f"# comment\n{line}\n", "tokens")
    assert "canary" not in str(error.value)


def test_the_command_makes_a_token_and_the_line_for_it(tmp_path: Path) -> None:
    result = CliRunner().invoke(make_app(FakeWiring), ["token", "new", "alice", "--role", "operator"])
    assert result.exit_code == 0
    token, line = (part.partition(":")[2].strip() for part in result.stdout.splitlines())
    assert "append the line to the file of api.auth.tokens_file" in result.stderr
    (tmp_path / "tokens").write_text(line + "\n")
    file = TokensFile(tmp_path / "tokens").check(token)
    assert file is not None and (file.name, file.role) == ("alice", "operator")
    assert CliRunner().invoke(make_app(FakeWiring), ["token", "new", "a.b"]).exit_code == 2
    assert CliRunner().invoke(make_app(FakeWiring), ["token", "new", "a", "--role", "boss"]).exit_code == 2


def test_a_script_takes_token_and_line_apart(tmp_path: Path) -> None:
    result = CliRunner().invoke(make_app(FakeWiring), ["token", "new", "alice", "--role", "operator", "-o", "json"])
    parsed = json.loads(result.stdout)
    assert result.exit_code == 0 and parsed.keys() == {"name", "role", "token", "line"}
    (tmp_path / "tokens").write_text(parsed["line"] + "\n")
    file = TokensFile(tmp_path / "tokens").check(parsed["token"])
    assert file is not None and (file.name, file.role) == (parsed["name"], parsed["role"]) == ("alice", "operator")


@pytest.mark.parametrize(("name", "role"), [("a.b", "viewer"), ("", "viewer"), ("a b", "viewer"), ("a", "boss")])
def test_names_and_roles_that_cannot_be(name: str, role: str) -> None:
    """A dot would part the token elsewhere."""
    with pytest.raises(ConfigError):
        new_token(name, role)


async def test_dry_runs_need_an_operator_and_unknown_paths_a_viewer(tokens: Tokens) -> None:
    app = guarded(tokens)
    roles_by_route = roles(app)
    assert roles_by_route["POST", "/api/v1/plans"] == roles_by_route["POST", "/api/v1/assignments"] == "operator"
    assert {role for (method, _), role in roles_by_route.items() if method not in ("GET", "HEAD")} == {
        "operator",
        "admin",
    }
    assert all(
        roles_by_route["GET", path] == role for (method, path), role in roles_by_route.items() if method == "HEAD"
    )
    async with client(app) as http:
        answer = await http.delete("/api/v1/whatever", headers=tokens.headers("viewer"))
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


async def test_nothing_about_tokens_is_logged(tokens: Tokens, tmp_path: Path) -> None:
    captured = CapturingLoggerFactory()
    old = structlog.get_config()
    structlog.configure(logger_factory=captured, processors=[structlog.processors.JSONRenderer()])
    try:
        bodies = []
        async with client(guarded(tokens, Issuer(tmp_path))) as http:
            await http.get("/api/v1/state", headers=tokens.headers("admin"))
            bodies.append((await http.get("/api/v1/state", headers={"Authorization": "Bearer canary-1"})).text)
            tokens.write(also="alice admin canary-2\n")
            bodies.append((await http.get("/api/v1/state", headers=tokens.headers("admin"))).text)
    finally:
        structlog.configure(**old)
    text = str([call.args for call in captured.logger.calls]) + "".join(bodies)
    assert "line 3" in text and "canary" not in text and tokens.tokens["admin"] not in text
    assert os.environ.get("BUNDLEKEEL_TOKEN_FILE") is None
