"""The sidecar over HTTP: where it listens, and its problems as errors with the fix in them."""

from __future__ import annotations

import json
import os
import re
import socket as socketlib
import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import typer

from bundlekeel.cli.exit_codes import BAD_NEWS, REFUSED, UNREACHABLE, USAGE, CliError, by_option
from bundlekeel.codec.external_input import clean_lines, cleaned
from bundlekeel.core.model.codes import OVERRIDE
from bundlekeel.core.model.errors import ConfigError
from bundlekeel.core.model.uris import credentials_fault, is_http_address
from bundlekeel.settings.files import read_bounded

TIMEOUT = httpx.Timeout(120.0, connect=5.0)
# Of one response.
MOST_BYTES = 64 * 1024 * 1024
_CODES = {
    400: USAGE,
    401: REFUSED,
    403: REFUSED,
    404: BAD_NEWS,
    409: REFUSED,
    413: USAGE,
    415: USAGE,
    421: REFUSED,
    422: USAGE,
    429: REFUSED,
}
# The most rows of a page (api/routes/reads.py), and lists that go back in time.
PAGE_ROWS = 1000
_RECORDS = ("journal", "verdicts")
_NO_ROUTE = ("no-route", "method-not-allowed")
# Fields of requests that have another name on the command line, or stand in a list there.
_OPTIONS = {
    "traffic_scale": "--scale",
    "add_brokers": "--add-broker",
    "remove_brokers": "--remove-broker",
    "parameters": "--set",
    "strategy": "--strategy",
    "placement": "--placement",
    "seconds": "--for",
    "reason": "--reason",
    "by": "--by",
    "since_ms": "--since",
    "until_ms": "--until",
    "limit": "--limit",
    "state": "--state",
    "at": "--at",
    "to": "--to",
}
OVERRIDE_OPTION = "--override-cool-down"
_ERRNO = re.compile(r"\[Errno -?\d+\] ")


def variable_of(option: str) -> str:
    """The variable that may say the same as an option of a command that asks a sidecar."""
    return f"BUNDLEKEEL_{option.strip('-').replace('-', '_').upper()}"


def option_of(option: str, value: object) -> str:
    """How a value was given: the option, or its variable."""
    return variable if os.environ.get(variable := variable_of(option)) == str(value) else option


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialFiles:
    """Files that say who asks: a bearer token, and what TLS trusts and shows. Never values: command lines and
    environments can be read by others."""

    token_file: Path | None = None
    trust_certs: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    @classmethod
    def of_environment(cls) -> CredentialFiles:
        """For commands that have no options for them."""
        named = {"token_file": "TOKEN_FILE", "trust_certs": "TLS_CA", "cert": "TLS_CERT", "key": "TLS_KEY"}
        found = {field: os.environ.get(f"BUNDLEKEEL_{name}") for field, name in named.items()}
        return cls(**{field: Path(value) for field, value in found.items() if value})

    def headers(self) -> dict[str, str]:
        """The `Authorization` header. CliError when the file cannot be used."""
        if self.token_file is None:
            return {}
        named = option_of("--token-file", self.token_file)
        try:
            token = read_bounded(self.token_file).decode("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            text = f"{named} {self.token_file} cannot be read: {why}; `bundlekeel token new` makes a token"
            raise CliError(text, USAGE) from None
        if not token.isascii() or not token.isprintable() or not token or " " in token:
            raise CliError(
                f"{named} {self.token_file} holds no valid token: expected one word of printable ASCII", USAGE
            )
        return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAddress:
    """Where a sidecar listens: a URL, or a unix socket. `trust_certs`: what its certificate is checked with.
    `absent_socket`: the socket of the settings, when the URL stands in for it because it is not there. `config`: the
    settings file that says where it listens. `cluster`: of that file, where another sidecar may have the same port."""

    url: str = ""
    socket: Path | None = None
    trust_certs: Path | None = None
    absent_socket: Path | None = None
    config: Path | None = None
    cluster: str = ""

    def __str__(self) -> str:
        return f"unix socket {self.socket}" if self.socket else self.url


def typed_options(context: typer.Context) -> set[str]:
    """Parameters of a command that its command line gives, not the environment or a default."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def find_address(url: str | None, socket: Path | None, config: Path | None) -> ApiAddress:
    """`--url`, then `--socket`, then the settings file: its socket when there is one, else its host and port."""
    if url:
        if fault := credentials_fault(url):
            raise CliError(f"{option_of('--url', url)}: {fault}; a token is given with --token-file", USAGE)
        if not is_http_address(url):
            expected = "expected http://host:port, with a port from 1 to 65535"
            raise CliError(f"{option_of('--url', url)} {url!r}: {expected}", USAGE)
        return ApiAddress(url=url.rstrip("/"))
    if socket:
        return ApiAddress(socket=socket)
    from bundlekeel.settings.load import load_settings  # noqa: PLC0415 - slow, and a URL or a socket needs none

    loaded = load_settings(config)
    api, socket = loaded.settings.api, loaded.located(loaded.settings.api.socket)
    if socket is not None and socket.exists() and os.access(socket, os.W_OK):
        return ApiAddress(socket=socket, config=config)
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(api.host, api.host)
    scheme = "https" if api.tls.on else "http"
    return ApiAddress(
        url=f"{scheme}://{host}:{api.port}",
        trust_certs=loaded.located(api.tls.trust_certs_file),
        absent_socket=socket if socket is not None and not socket.exists() else None,
        config=config,
        cluster=loaded.settings.cluster if config is not None else "",
    )


class Client:
    """One sidecar; `get` and friends return decoded JSON or raise CliError."""

    def __init__(self, address: ApiAddress, credentials: CredentialFiles | None = None) -> None:
        self.address = address
        self._cluster_to_find = address.cluster
        given = credentials or CredentialFiles()
        # Loading the trusted certificates takes longer than all the rest; plain HTTP has no use for them.
        verify: ssl.SSLContext | bool = False
        if address.url.startswith("https://"):
            from bundlekeel.tls import ClientTls  # noqa: PLC0415 - it imports structlog

            trust_certs = given.trust_certs or address.trust_certs
            trusted = ClientTls(trust_certs=trust_certs, cert=given.cert, key=given.key)
            files = {"--tls-ca": trust_certs, "--tls-cert": given.cert, "--tls-key": given.key}
            named = ", ".join(option_of(option, file) for option, file in files.items() if file is not None)
            alone = " without --tls-key" if given.cert is not None and given.key is None else ""
            verify = trusted.context(field=named + alone)
        transport = httpx.HTTPTransport(uds=str(address.socket) if address.socket else None, verify=verify)
        self._http = httpx.Client(
            base_url=address.url or "http://localhost",
            headers={} if address.socket else given.headers(),
            transport=transport,
            timeout=TIMEOUT,
            trust_env=False,
            follow_redirects=False,
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def get(self, path: str, **query: Any) -> Any:
        """GET below `/api/v1`; parameters that are None are left out."""
        given = {key: value for key, value in query.items() if value is not None}
        return self._json(self._send("GET", f"/api/v1/{path}", params=given))

    def rows(self, path: str, *, limit: int, **query: Any) -> list[Any]:
        """GET a list of at most `limit` rows, in as many pages as that takes. Of records the newest come last, and each
        page is older than the one before it."""
        given = {key: value for key, value in query.items() if value is not None}
        answer = self._send("GET", f"/api/v1/{path}", params={**given, "limit": min(limit, PAGE_ROWS)})
        rows: list[Any] = self._json(answer)
        older = path in _RECORDS
        while len(rows) < limit and (link := answer.links.get("next")) is not None:
            answer = self._send("GET", link["url"])
            found = self._json(answer)
            if older:
                # A page begins with the oldest millisecond of the page before it.
                known = [row for row in rows if row["wall_ms"] == rows[0]["wall_ms"]]
                found = [row for row in found if row not in known]
            if not found:
                break
            rows = [*found, *rows] if older else [*rows, *found]
        return rows[-limit:] if older else rows[:limit]

    def send(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        """POST or PUT below `/api/v1` with a JSON body."""
        return self._json(self._send(method, f"/api/v1/{path}", json=dict(body)))

    def probe(self, path: str) -> tuple[bool, list[str]]:
        """A probe: whether it passes, and its lines."""
        answer = self._send("GET", f"/{path}?verbose")
        if answer.status_code not in (200, 503):
            raise self._problem(answer)
        return answer.status_code == 200, answer.text.splitlines()

    def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            if self.address.socket:
                _knock(self.address.socket)
            self._demand_cluster()
            return self._read(method, path, **more)
        except httpx.TimeoutException:
            raise CliError(f"the sidecar at {self.address} did not answer in time", UNREACHABLE) from None
        except (httpx.TransportError, httpx.InvalidURL, OSError) as error:
            raise self._unreachable(_ERRNO.sub("", str(error))) from None

    def _read(self, method: str, path: str, **more: Any) -> httpx.Response:
        with self._http.stream(method, path, **more) as answer:
            content = bytearray()
            for chunk in answer.iter_bytes():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise self._stranger(f": its response has more than {MOST_BYTES >> 20} MiB")
        headers = [
            item for item in answer.headers.multi_items() if item[0] not in ("content-encoding", "content-length")
        ]
        return httpx.Response(answer.status_code, headers=headers, content=bytes(content), request=answer.request)

    def _demand_cluster(self) -> None:
        """Before the first request: CliError when a sidecar of another cluster listens where the settings file says."""
        named, self._cluster_to_find = self._cluster_to_find, ""
        answer = self._read("GET", "/api/v1/state") if named else None
        if answer is None or not answer.is_success:
            return
        try:
            found = str(_shown(answer)["cluster"])
        except (ValueError, KeyError, TypeError):
            return
        if found != named:
            file = self.address.config
            text = f"the sidecar at {self.address} is of the cluster {found!r}, {file} of {named!r}"
            raise CliError(f"{text}; start one with `bundlekeel run -c {file}`, or name it with --url", UNREACHABLE)

    def _unreachable(self, why: str) -> CliError:
        """What was tried, and what was not."""
        address = self.address
        if "WRONG_VERSION_NUMBER" in why:
            text = f"what answers at {address} does so without TLS; is it {address.url.replace('https', 'http', 1)}?"
            return CliError(text, UNREACHABLE)
        tried = f", and there is no socket {address.absent_socket}" if address.absent_socket else ""
        others = "--url or --socket" if address.config else "--url, --socket or -c"
        text = f"no sidecar answers at {address} ({why}){tried}"
        start = f"start one with `bundlekeel run -c {address.config or '…'}`, or name it with {others}"
        return CliError(f"{text}; {start}", UNREACHABLE)

    def _json(self, answer: httpx.Response) -> Any:
        if not answer.is_success:
            raise self._problem(answer)
        try:
            return _shown(answer)
        except ValueError:
            raise self._stranger() from None

    def _stranger(self, detail: str = "") -> CliError:
        text = f"what answers at {self.address} is not a sidecar{detail}"
        return CliError(
            f"{text}; name one with --url (its port is `api.port`, 8090 by default) or --socket", UNREACHABLE
        )

    def _problem(self, answer: httpx.Response) -> CliError:
        try:
            told = _shown(answer)
            detail, difference = str(told["detail"]), told.get("difference") or []
        except (ValueError, KeyError, TypeError):
            return self._stranger(f" (HTTP {answer.status_code})")
        absent = str(told.get("type")).rpartition(":")[2] in _NO_ROUTE
        if answer.request.method != "GET" and absent and self.address.absent_socket:
            text = f"no sidecar of these settings runs here: there is no socket {self.address.absent_socket}"
            return CliError(f"{text}; what answers at {self.address} takes no changes", UNREACHABLE)
        if answer.request.method == "GET" and absent:
            path = answer.request.url.path
            hint = "expected the address of a sidecar of this release, http://host:port"
            return CliError(f"{self.address} has no {path}: {hint}", USAGE)
        if absent:
            hint = "use the unix socket of that sidecar: --socket PATH, or -c FILE"
            return CliError(f"{self.address} accepts no changes, and no dry runs of them; {hint}", REFUSED)
        detail = detail.replace(OVERRIDE, OVERRIDE_OPTION)
        if answer.status_code == 401:
            detail += "; name a file with a token: --token-file, or BUNDLEKEEL_TOKEN_FILE"
        for fault in told.get("errors") or [told]:
            field = str(fault.get("field"))
            head, _, key = field.partition(".")
            if option := _OPTIONS.get(head):
                # Of several `--set` the key says which.
                detail = by_option(detail, field, f"{option} {key}" if head == "parameters" else option)
        if told.get("allowed") and told["allowed"] not in detail:
            detail += f" (allowed: {told['allowed']})"
        code = _CODES.get(answer.status_code, UNREACHABLE if answer.status_code >= 502 else BAD_NEWS)
        return CliError("\n".join([detail, *(f"  - {item}" for item in difference if item not in detail)]), code)


def _shown(answer: httpx.Response) -> Any:
    """Its JSON, fit for a terminal: reasons and names come from anybody. ValueError when it is none."""
    try:
        return cleaned(json.loads(answer.content), text=clean_lines)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _knock(path: Path) -> None:
    """Raise OSError when no process listens there; httpcore would leave its socket open then."""
    with socketlib.socket(socketlib.AF_UNIX, socketlib.SOCK_STREAM) as knock:
        knock.settimeout(5)
        knock.connect(str(path))


def path_part(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")


def connect(
    url: str | None,
    socket: Path | None,
    config: Path | None,
    credentials: CredentialFiles | None = None,
    *,
    typed: Collection[str] = (),
) -> Client:
    """A client for the sidecar that these options name. `typed`: those that are on the command line."""
    try:
        tls = {"tls_ca", "tls_cert", "tls_key"} & set(typed)
        typed = {"url", "socket", "config"} & set(typed)
        if typed >= {"url", "socket"}:
            raise CliError("--url and --socket each name a sidecar: give one of them", USAGE)
        if typed:
            # What is typed goes before the environment, which else would name another cluster.
            url, socket = url if "url" in typed else None, socket if "socket" in typed else None
        address = find_address(url, socket, config)
        if tls and not address.url.startswith("https://"):
            option = f"--{min(tls).replace('_', '-')}"
            raise CliError(f"{option} has no effect with {address}: give an https:// address, or omit it", USAGE)
        if "tls_key" in tls and credentials is not None and credentials.cert is None:
            raise CliError("--tls-key has no effect without --tls-cert: add it, or omit --tls-key", USAGE)
        return Client(address, credentials or CredentialFiles.of_environment())
    except ConfigError as error:
        raise CliError(str(error), USAGE) from None
