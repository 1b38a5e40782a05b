"""HTTP client of a sidecar. It finds the sidecar's address, and turns error responses into messages with the fix."""

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
from bundlekeel.model.codes import OVERRIDE
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.uris import credentials_fault, is_http_address
from bundlekeel.pulsar.formats.external_input import clean_lines, cleaned
from bundlekeel.settings.files import read_bounded

TIMEOUT = httpx.Timeout(120.0, connect=5.0)
# Largest accepted response, in bytes.
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
# Largest page that a sidecar returns, in rows (api/routes/reads.py).
PAGE_ROWS = 1000
# Lists that return the newest records first, so that the next page has older records.
_RECORDS = ("journal", "verdicts")
_NO_ROUTE = ("no-route", "method-not-allowed")
# Option of the command line for each request field that an error response can name.
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
    """Return the environment variable of an option that selects a sidecar."""
    return f"BUNDLEKEEL_{option.strip('-').replace('-', '_').upper()}"


def option_of(option: str, value: object) -> str:
    """Return the name of the option that set a value, or of its environment variable if the variable has this value."""
    return variable if os.environ.get(variable := variable_of(option)) == str(value) else option


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialFiles:
    """Files with the credentials of a request: bearer token, trusted certificates, client certificate and key.

    They are in files because other users of the host can read command lines and environments.
    """

    token_file: Path | None = None
    trust_certs: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    @classmethod
    def of_environment(cls) -> CredentialFiles:
        """Return the files that the environment variables name, for commands without these options."""
        variables = {"token_file": "TOKEN_FILE", "trust_certs": "TLS_CA", "cert": "TLS_CERT", "key": "TLS_KEY"}
        paths = {field: os.environ.get(f"BUNDLEKEEL_{name}") for field, name in variables.items()}
        return cls(**{field: Path(value) for field, value in paths.items() if value})

    def headers(self) -> dict[str, str]:
        """Return the `Authorization` header. Raises CliError if the token file cannot be used."""
        if self.token_file is None:
            return {}
        option = option_of("--token-file", self.token_file)
        try:
            token = read_bounded(self.token_file).decode("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            message = f"{option} {self.token_file} cannot be read: {reason}; create a token with `bundlekeel token new`"
            raise CliError(message, USAGE) from None
        if not token.isascii() or not token.isprintable() or not token or " " in token:
            raise CliError(
                f"{option} {self.token_file} does not contain a valid token: expected one word of printable ASCII",
                USAGE,
            )
        return {"Authorization": f"Bearer {token}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiAddress:
    """Address of a sidecar: a URL or a unix socket.

    `trust_certs`: CA certificates that verify the sidecar's certificate. `absent_socket`: the socket in the settings,
    if it does not exist, so that the URL is used instead. `config`: the settings file with the address. `cluster`: the
    cluster in that file; requests fail if the sidecar at this address belongs to another cluster.
    """

    url: str = ""
    socket: Path | None = None
    trust_certs: Path | None = None
    absent_socket: Path | None = None
    config: Path | None = None
    cluster: str = ""

    def __str__(self) -> str:
        return f"unix socket {self.socket}" if self.socket else self.url


def typed_options(context: typer.Context) -> set[str]:
    """Return the names of parameters that the command line sets, not the environment or a default."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"}


def find_address(url: str | None, socket: Path | None, config: Path | None) -> ApiAddress:
    """Return the address from `--url`, else `--socket`, else the settings: their socket if it exists, else host and
    port."""
    if url:
        if fault := credentials_fault(url):
            raise CliError(f"{option_of('--url', url)}: {fault}; pass a token with --token-file", USAGE)
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
    """Connection to one sidecar. Methods return decoded JSON, and raise CliError if a request fails."""

    def __init__(self, address: ApiAddress, credentials: CredentialFiles | None = None) -> None:
        self.address = address
        self._cluster_to_find = address.cluster
        credentials = credentials or CredentialFiles()
        # Load certificates only for HTTPS, because it is the slowest step.
        verify: ssl.SSLContext | bool = False
        if address.url.startswith("https://"):
            from bundlekeel.settings.tls import ClientTls  # noqa: PLC0415 - it imports structlog

            trust_certs = credentials.trust_certs or address.trust_certs
            tls = ClientTls(trust_certs=trust_certs, cert=credentials.cert, key=credentials.key)
            files = {"--tls-ca": trust_certs, "--tls-cert": credentials.cert, "--tls-key": credentials.key}
            options = ", ".join(option_of(option, file) for option, file in files.items() if file is not None)
            no_key = " without --tls-key" if credentials.cert is not None and credentials.key is None else ""
            verify = tls.context(field=options + no_key)
        transport = httpx.HTTPTransport(uds=str(address.socket) if address.socket else None, verify=verify)
        self._http = httpx.Client(
            base_url=address.url or "http://localhost",
            headers={} if address.socket else credentials.headers(),
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
        """Send a GET request to a path below `/api/v1` and return the response. Omits parameters that are None."""
        parameters = {key: value for key, value in query.items() if value is not None}
        return self._json(self._send("GET", f"/api/v1/{path}", params=parameters))

    def rows(self, path: str, *, limit: int, **query: Any) -> list[Any]:
        """Return at most `limit` rows of a list, from as many pages as needed.

        The rows of `journal` and `verdicts` are sorted by time, but their first page contains the newest records.
        """
        parameters = {key: value for key, value in query.items() if value is not None}
        response = self._send("GET", f"/api/v1/{path}", params={**parameters, "limit": min(limit, PAGE_ROWS)})
        rows: list[Any] = self._json(response)
        older = path in _RECORDS
        while len(rows) < limit and (link := response.links.get("next")) is not None:
            response = self._send("GET", link["url"])
            page = self._json(response)
            if older:
                # The next page repeats the records of the oldest millisecond: drop the repeated ones.
                overlap = [row for row in rows if row["wall_ms"] == rows[0]["wall_ms"]]
                page = [row for row in page if row not in overlap]
            if not page:
                break
            rows = [*page, *rows] if older else [*rows, *page]
        return rows[-limit:] if older else rows[:limit]

    def send(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        """Send a request with a JSON body to a path below `/api/v1` and return the response."""
        return self._json(self._send(method, f"/api/v1/{path}", json=dict(body)))

    def probe(self, path: str) -> tuple[bool, list[str]]:
        """Return whether a health probe passes, and the lines of its response: one per check."""
        response = self._send("GET", f"/{path}?verbose")
        if response.status_code not in (200, 503):
            raise self._problem(response)
        return response.status_code == 200, response.text.splitlines()

    def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            if self.address.socket:
                _check_listening(self.address.socket)
            self._demand_cluster()
            return self._read(method, path, **more)
        except httpx.TimeoutException:
            raise CliError(f"the sidecar at {self.address} did not answer in time", UNREACHABLE) from None
        except (httpx.TransportError, httpx.InvalidURL, OSError) as error:
            raise self._unreachable(_ERRNO.sub("", str(error))) from None

    def _read(self, method: str, path: str, **more: Any) -> httpx.Response:
        with self._http.stream(method, path, **more) as response:
            content = bytearray()
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > MOST_BYTES:
                    raise self._not_a_sidecar(f": its response has more than {MOST_BYTES >> 20} MiB")
        headers = [
            item for item in response.headers.multi_items() if item[0] not in ("content-encoding", "content-length")
        ]
        return httpx.Response(response.status_code, headers=headers, content=bytes(content), request=response.request)

    def _demand_cluster(self) -> None:
        """Raise CliError before the first request if the sidecar belongs to another cluster than the settings file."""
        expected, self._cluster_to_find = self._cluster_to_find, ""
        response = self._read("GET", "/api/v1/state") if expected else None
        if response is None or not response.is_success:
            return
        try:
            cluster = str(_decode_json(response)["cluster"])
        except (ValueError, KeyError, TypeError):
            return
        if cluster != expected:
            file = self.address.config
            message = (
                f"the sidecar at {self.address} belongs to cluster {cluster!r}, but {file} to cluster {expected!r}"
            )
            raise CliError(
                f"{message}; start one with `bundlekeel run -c {file}`, or select one with --url", UNREACHABLE
            )

    def _unreachable(self, reason: str) -> CliError:
        """Return the error for an address without a sidecar, with the fix."""
        address = self.address
        if "WRONG_VERSION_NUMBER" in reason:
            message = f"the server at {address} does not use TLS; try {address.url.replace('https', 'http', 1)}"
            return CliError(message, UNREACHABLE)
        tried = f", and there is no socket {address.absent_socket}" if address.absent_socket else ""
        others = "--url or --socket" if address.config else "--url, --socket or -c"
        message = f"no sidecar answers at {address} ({reason}){tried}"
        start = f"start one with `bundlekeel run -c {address.config or '…'}`, or select one with {others}"
        return CliError(f"{message}; {start}", UNREACHABLE)

    def _json(self, response: httpx.Response) -> Any:
        if not response.is_success:
            raise self._problem(response)
        try:
            return _decode_json(response)
        except ValueError:
            raise self._not_a_sidecar() from None

    def _not_a_sidecar(self, detail: str = "") -> CliError:
        text = f"the server at {self.address} is not a sidecar{detail}"
        return CliError(
            f"{text}; select one with --url (its port is `api.port`, 8090 by default) or --socket", UNREACHABLE
        )

    def _problem(self, response: httpx.Response) -> CliError:
        try:
            problem = _decode_json(response)
            detail, difference = str(problem["detail"]), problem.get("difference") or []
        except (ValueError, KeyError, TypeError):
            return self._not_a_sidecar(f" (HTTP {response.status_code})")
        absent = str(problem.get("type")).rpartition(":")[2] in _NO_ROUTE
        if response.request.method != "GET" and absent and self.address.absent_socket:
            text = f"no sidecar of these settings runs here: there is no socket {self.address.absent_socket}"
            return CliError(f"{text}; the server at {self.address} does not accept changes", UNREACHABLE)
        if response.request.method == "GET" and absent:
            path = response.request.url.path
            hint = "expected the address of a sidecar of this release, http://host:port"
            return CliError(f"{self.address} has no {path}: {hint}", USAGE)
        if absent:
            hint = "use the unix socket of that sidecar: --socket PATH, or -c FILE"
            return CliError(f"{self.address} accepts neither changes nor their dry runs; {hint}", REFUSED)
        detail = detail.replace(OVERRIDE, OVERRIDE_OPTION)
        if response.status_code == 401:
            detail += "; pass a file with a token: --token-file, or BUNDLEKEEL_TOKEN_FILE"
        for fault in problem.get("errors") or [problem]:
            field = str(fault.get("field"))
            head, _, key = field.partition(".")
            if option := _OPTIONS.get(head):
                # Name the key, too, because a command line can contain `--set` several times.
                detail = by_option(detail, field, f"{option} {key}" if head == "parameters" else option)
        if problem.get("allowed") and problem["allowed"] not in detail:
            detail += f" (allowed: {problem['allowed']})"
        code = _CODES.get(response.status_code, UNREACHABLE if response.status_code >= 502 else BAD_NEWS)
        return CliError("\n".join([detail, *(f"  - {item}" for item in difference if item not in detail)]), code)


def _decode_json(response: httpx.Response) -> Any:
    """Decode a JSON response and remove control characters from its strings, because some are input of users.

    Raises ValueError if the response is not JSON.
    """
    try:
        return cleaned(json.loads(response.content), text=clean_lines)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _check_listening(path: Path) -> None:
    """Raise OSError if no process listens on the socket: httpx would leave its own socket open in that case."""
    with socketlib.socket(socketlib.AF_UNIX, socketlib.SOCK_STREAM) as probe:
        probe.settimeout(5)
        probe.connect(str(path))


def path_part(name: str) -> str:
    """Return a name as one URL-quoted segment of a path."""
    return quote(name, safe="")


def connect(
    url: str | None,
    socket: Path | None,
    config: Path | None,
    credentials: CredentialFiles | None = None,
    *,
    typed: Collection[str] = (),
) -> Client:
    """Return a client for the sidecar that these options select.

    `typed`: names of the options on the command line; these win over options from the environment. Raises CliError
    if options contradict each other.
    """
    try:
        tls = {"tls_ca", "tls_cert", "tls_key"} & set(typed)
        typed = {"url", "socket", "config"} & set(typed)
        if typed >= {"url", "socket"}:
            raise CliError("--url and --socket each select a sidecar: pass only one of them", USAGE)
        if typed:
            # The command line wins, because the environment can select another cluster.
            url, socket = url if "url" in typed else None, socket if "socket" in typed else None
        address = find_address(url, socket, config)
        if tls and not address.url.startswith("https://"):
            option = f"--{min(tls).replace('_', '-')}"
            raise CliError(f"{option} has no effect with {address}: use an https:// address, or omit it", USAGE)
        if "tls_key" in tls and credentials is not None and credentials.cert is None:
            raise CliError("--tls-key has no effect without --tls-cert: add it, or omit --tls-key", USAGE)
        return Client(address, credentials or CredentialFiles.of_environment())
    except ConfigError as error:
        raise CliError(str(error), USAGE) from None
