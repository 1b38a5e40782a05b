"""The check of credentials and the shield by themselves, to the second and to the character, without any route."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from bundlekeel.api.auth import PRINCIPAL, AccessRules, Authentication, FailedLogins, address_of, network_of
from bundlekeel.api.shield import REQUEST_SECONDS, SECURITY_HEADERS, Shield
from bundlekeel.settings.credentials import Credentials, TokensFile
from bundlekeel.simulator.virtual_time import run_virtually
from tests.support.contracts.admin import Recorder
from tests.support.security import Issuer, SteppedClock, Tokens


def test_how_long_an_address_waits() -> None:
    """Until the oldest of its failures is a minute old, once there are as many as it may make."""
    failures = FailedLogins(2)
    assert failures.wait("10.0.0.1", 100.0) == 0.0
    failures.add("10.0.0.1", 100.0)
    assert failures.wait("10.0.0.1", 100.0) == 0.0
    failures.add("10.0.0.1", 110.0)
    assert [failures.wait("10.0.0.1", now) for now in (110.0, 159.5, 160.0, 171.0)] == [50.0, 0.5, 0.0, 0.0]
    failures.add("10.0.0.1", 200.0)
    failures.add("10.0.0.1", 201.0)
    failures.add("10.0.0.1", 202.0)
    assert failures.wait("10.0.0.1", 202.0) == 59.0, "of three the last two count"


def test_how_many_addresses_are_remembered() -> None:
    """Ten thousand; the next one takes the place of the one whose last failure is the oldest."""
    failures = FailedLogins(1)
    for number in range(10_000):
        failures.add(f"10.0.{number >> 8}.{number & 255}", 1.0)
    assert failures.wait("10.0.0.0", 1.0) > 0
    failures.add("10.0.0.0", 2.0)
    failures.add("10.1.0.0", 2.0)
    assert [failures.wait(f"10.0.0.{number}", 2.0) > 0 for number in range(3)] == [True, False, True]
    assert failures.wait("10.1.0.0", 2.0) > 0


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:8000::", "2001:db8:1:2::/64"),
        ("", ""),
        ("testclient", "testclient"),
    ],
)
def test_what_counts_as_one_address(address: str, network: str) -> None:
    """An IPv4 address, or the half of an IPv6 address that a host does not choose; other names as they are."""
    assert network_of(address) == network
    failures = FailedLogins(1)
    failures.add(address, 0.0)
    assert (failures.wait(network.removesuffix("/64"), 1.0), failures.wait("2001:db8:0:1::", 1.0)) == (59.0, 0.0)


def test_the_address_of_a_client() -> None:
    """Without its port; none on the unix socket."""
    assert address_of({"client": ("10.0.0.1", 5)}) == "10.0.0.1"
    assert address_of({"client": None}) == address_of({}) == ""


class Door:
    """The check of credentials, asked without any app."""

    def __init__(self, credentials: Credentials, **more: Any) -> None:
        self.clock, self.counted = SteppedClock(), Recorder()
        access = AccessRules(credentials=credentials, telemetry=self.counted, **{"boot": self.clock.boot, **more})
        self._checked = Authentication(access)
        self.scope: Scope = {}

    async def ask(self, header: str | None, role: str = "viewer") -> tuple[int, dict[str, str], str]:
        """Status, headers and detail; 0 where the request may pass."""
        inputs = [] if header is None else [(b"authorization", header.encode("latin-1"))]
        self.scope = {"type": "http", "headers": inputs, "client": ("10.0.0.1", 5)}
        refused = await self._checked.refusal(self.scope, role)
        if refused is None:
            return 0, {}, ""
        body = json.loads(bytes(refused.body))
        assert body["status"] == refused.status_code
        return refused.status_code, dict(refused.headers), body["detail"]

    def counts(self) -> dict[str, int]:
        """Refusals by status."""
        return {dict(labels)["code"]: number for (_, labels), number in self.counted.counts.items()}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    """One token a role."""
    return Tokens(tmp_path_factory.mktemp("tokens"))


async def test_ten_failures_a_minute_and_no_anonymous_reads_unless_told(tokens: Tokens) -> None:
    door = Door(Credentials(TokensFile(tokens.path), None))
    status, headers, detail = await door.ask(None)
    assert (status, headers["www-authenticate"]) == (401, 'Bearer realm="bundlekeel"')
    assert "Authorization: Bearer TOKEN" in detail
    output = [await door.ask("Bearer wrong") for _ in range(11)]
    assert [status for status, _, _ in output] == [401] * 10 + [429]
    assert output[0][1]["www-authenticate"] == 'Bearer realm="bundlekeel", error="invalid_token"'
    assert (output[10][1]["retry-after"], "www-authenticate" in output[10][1]) == ("60", False)
    assert "too many" in output[10][2]
    assert (await door.ask(f"Bearer {tokens.tokens['admin']}"))[0] == 429, "a token that was not checked before"
    door.clock.now += 59.5
    assert (await door.ask("Bearer wrong"))[1]["retry-after"] == "1"
    door.clock.now += 0.5
    status, _, detail = await door.ask(f"bearer  {tokens.tokens['viewer']} ", "operator")
    assert status == 403 and detail.startswith("the-viewer has role viewer; this request needs role operator; ask")
    assert (await door.ask(f"BEARER {tokens.tokens['admin']}", "operator"))[0] == 0
    assert door.scope[PRINCIPAL].name == "the-admin"
    assert door.counts() == {"401": 11, "429": 3, "403": 1}


async def test_who_waited_for_the_check_of_another_may_be_one_too_many(tokens: Tokens) -> None:
    """Two at once where one a minute may fail: the second is not checked, were it but half a second too early."""
    times = iter((0.0, 0.0, 0.0, 0.0, 59.5))
    door = Door(Credentials(TokensFile(tokens.path), None), failures_per_minute=1, boot=times.__next__)
    (first, _, _), (second, headers, _) = await asyncio.gather(door.ask("Bearer wrong"), door.ask("Bearer too"))
    assert (first, second, headers["retry-after"]) == (401, 429, "1")


async def test_a_good_token_under_another_scheme_is_none(tokens: Tokens) -> None:
    door = Door(Credentials(TokensFile(tokens.path), None), failures_per_minute=2)
    good = tokens.tokens["viewer"]
    assert (await door.ask(f"Bearer {good}"))[0] == 0
    assert [(await door.ask(f"{scheme} {good}"))[0] for scheme in ("Basic", "")] == [401, 401]
    assert (await door.ask("Bearer \xe9"))[0] == 429, "each counted as a failure"
    assert (await door.ask(f"Bearer {good}"))[0] == 0, "what was good before needs no check"


async def test_an_anonymous_read_has_no_name(tokens: Tokens) -> None:
    """Only a viewer's routes; who gives credentials is asked for good ones."""
    door = Door(Credentials(TokensFile(tokens.path), None), anonymous_reads=True)
    assert [(await door.ask(None, role))[0] for role in ("viewer", "operator", "admin")] == [0, 401, 401]
    assert PRINCIPAL not in door.scope
    assert (await door.ask("Bearer wrong"))[0] == 401


async def test_the_longest_token(tmp_path: Any) -> None:
    """16,384 characters; a longer one is not looked at, whoever signed it."""
    issuer = Issuer(tmp_path)
    door = Door(Credentials(None, issuer.keys()))
    # Three bytes of a claim are four characters of the token.
    about = 3 * (16_384 - len(issuer.jwt(pad=""))) // 4
    result = {len(token): token for token in (issuer.jwt(pad="x" * (about + more)) for more in range(-4, 5))}
    longer = min(length for length in result if length > 16_384)
    assert longer <= 16_386
    assert [(await door.ask(f"Bearer {result[length]}"))[0] for length in (16_384, longer)] == [0, 401]


# --- the shield ------------------------------------------------------------------------------------------------


class Behind:
    """An app behind the shield: sends the `first` messages of its answer, then raises, or ends it `seconds` later."""

    def __init__(self, seconds: float = 0.0, *, first: int = 0, error: Exception | None = None) -> None:
        self.seconds, self.first, self.error = seconds, first, error
        self.scopes: list[str] = []

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        self.scopes.append(scope["type"])
        head = {"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"max-age=5")]}
        started = {"type": "http.response.body", "body": b"do", "more_body": True}
        for number, message in enumerate([head, started, {"type": "http.response.body", "body": b"ne"}]):
            if number == self.first:
                if self.error is not None:
                    raise self.error
                await asyncio.sleep(self.seconds)
            await send(message)


async def send_request(
    app: Behind,
    *,
    hosts: tuple[str, ...] = (),
    method: str = "GET",
    path: str = "/x",
    kind: str = "http",
    **headers: str,
) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body that came through the shield."""
    output = {"host": "localhost", **{name.replace("_", "-"): value for name, value in headers.items()}}
    inputs = [(name.encode(), value.encode()) for name, value in output.items()]
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": kind, "method": method, "path": path, "headers": inputs}
    await Shield(app, allowed_hosts=hosts)(scope, receive, send)
    if not sent:
        return 0, {}, b""
    result = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], result, b"".join(message.get("body", b"") for message in sent[1:])


def test_an_answer_within_the_time_comes_whole() -> None:
    """With the security headers, except where the app says otherwise; a refusal has them all."""
    status, headers, body = run_virtually(send_request(Behind(REQUEST_SECONDS - 0.1)))
    expected = {name.lower(): value for name, value in SECURITY_HEADERS.items()}
    assert (status, body) == (200, b"done")
    assert headers == expected | {"cache-control": "max-age=5", "x-request-id": headers["x-request-id"]}
    status, headers, _ = run_virtually(send_request(Behind(), host="evil.example"))
    assert status == 421 and expected.items() <= headers.items()


def test_no_answer_within_two_minutes_is_a_504() -> None:
    """With the security headers; where the answer has begun, the connection has to break off."""
    status, headers, body = run_virtually(send_request(Behind(REQUEST_SECONDS + 0.1)))
    assert (status, json.loads(body)["detail"]) == (504, "no answer within 120 s")
    assert headers["cache-control"] == "no-store" and json.loads(body)["status"] == 504
    for first in (1, 2):
        with pytest.raises(TimeoutError):
            run_virtually(send_request(Behind(REQUEST_SECONDS + 0.1, first=first)))


def test_a_time_out_of_the_app_itself_is_its_own() -> None:
    """Not ours to answer."""
    with pytest.raises(TimeoutError, match="a broker"):
        run_virtually(send_request(Behind(error=TimeoutError("a broker"))))


async def test_what_is_no_request_passes() -> None:
    """The start and the end of the server."""
    app = Behind()
    await send_request(app, kind="lifespan", host="evil.example")
    assert app.scopes == ["lifespan"]


@pytest.mark.parametrize("sign", ["\n", "\0", "\x7f", "\u2028", "\u2029"])
async def test_a_path_with_a_control_character_is_refused(sign: str) -> None:
    for path in (f"/x{sign}", f"{sign}/x", f"/x{sign}y"):
        status, _, body = await send_request(Behind(), path=path)
        assert status == 400 and json.loads(body)["type"].endswith("wrong-path")
    assert (await send_request(Behind(), path="/\xe9 ~"))[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content_length": "0", "content_type": "text/plain"}, 200),
        ({"content_type": "text/plain"}, 200),
        ({"content_length": "2", "content_type": "text/plain"}, 415),
        ({"content_length": "2"}, 415),
        ({"content_length": "2", "content_type": "Application/JSON ; charset=utf-8"}, 200),
        ({"transfer_encoding": "chunked", "content_type": "text/plain"}, 415),
        ({"transfer_encoding": "chunked", "content_type": "application/json"}, 200),
        ({"origin": "http://LOCALHOST"}, 200),
        ({"origin": "http://localhost:1"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"origin": "http://]"}, 403),
        ({"origin": "//[::1"}, 403),
        ({"origin": "http://[::1]x:80"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "none"}, 200),
        ({"sec_fetch_site": "cross-site", "origin": "http://localhost"}, 403),
        ({"sec_fetch_site": "same-origin", "origin": "http://localhost"}, 200),
    ],
)
async def test_what_a_write_must_look_like(headers: dict[str, str], status: int) -> None:
    for hosts, host in (((), "localhost"), (("*",), "localhost"), (("*",), "")):
        response, _, body = await send_request(Behind(), method="POST", hosts=hosts, **({"host": host} | headers))
        if host or status == 403:
            assert response == status and (status == 200 or json.loads(body)["status"] == status)
    assert (await send_request(Behind(), method="GET", **headers))[0] == 200


@pytest.mark.parametrize(
    ("hosts", "host", "path", "passes"),
    [
        ((), "localhost.", "/x", True),
        ((), "[::1]:8090", "/x", True),
        ((), "127.0.0.1", "/x", True),
        ((), "localhost.evil.example", "/x", False),
        ((), "[::1", "/x", False),
        ((), "a@b", "/x", False),
        ((), "", "/x", False),
        ((), "10.9.9.9:8090", "/readyz", True),
        ((), "LOCALHOST:80", "/x", True),
        ((), "10.0.0.1", "/x", False),
        ((), "10.0.0.1", "/livez", True),
        ((), "[2001:db8::1]:80", "/metrics", True),
        ((), "evil.example", "/livez", False),
        ((), "", "/livez", False),
        (("*",), "evil.example", "/x", True),
        (("Keel.Example:80",), "keel.example", "/x", True),
        ((".SVC.local",), "a.svc.local:1", "/x", True),
        ((".svc.local",), "svc.local", "/x", False),
        (("2001:db8::1",), "[2001:db8::1]", "/x", False),
        (("[2001:db8::1]",), "[2001:db8::1]:80", "/x", True),
        (("keel.example",), "localhost", "/x", True),
    ],
)
async def test_which_hosts_are_served(hosts: tuple[str, ...], host: str, path: str, passes: bool) -> None:
    assert (await send_request(Behind(), hosts=hosts, host=host, path=path))[0] == (200 if passes else 421)
