"""docs/reference/wrong-inputs.md: what the product answers to wrong inputs, by giving them to it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, cast
from unittest import mock

import httpx
import structlog

from bundlekeel import wiring
from bundlekeel.api import ApiServer
from bundlekeel.api.app import create_app
from bundlekeel.api.auth import AccessRules
from bundlekeel.api.problems import EXAMPLE_ID
from bundlekeel.daemon.service import Service
from dev import NOTE
from dev.loop_thread import LoopThread
from tests.support.security import Tokens, access_for
from tests.support.world import FakeCluster, FakeSidecar

_COLUMNS: Final = "110"
_FILE: Final = "bundlekeel.yaml"
_STORE: Final = "cluster: pulsar-1\nmetadata_store: zk:127.0.0.1:2181/pulsar\n"

# What is wrong -> the settings file.
SETTINGS: Final = {
    "An empty file": "",
    "An unknown key": f"{_STORE}strategi: avg\n",
    "A word that YAML reads as false": f"{_STORE}mode: off\n",
    "An unknown strategy": f"{_STORE}strategy: averages\n",
    "A strategy, misspelt": f"{_STORE}strategy: deviaton\n",
    "A duration with an unknown unit": f"{_STORE}cycle: {{interval: 5 minutes}}\n",
    "The same for a parameter": f"{_STORE}parameters: {{cool_down_seconds: 30mm}}\n",
    "A number out of its range": f"{_STORE}parameters: {{max_unload_ratio: 3}}\n",
    "A ratio where percent are meant: a warning": f"{_STORE}parameters: {{overloaded_threshold_percent: 0.85}}\n",
    "A parameter twice, by two of its names": (
        f"{_STORE}parameters:\n  threshold_percent: 10\n  loadBalancerBrokerThresholdShedderPercentage: 12\n"
    ),
    "An exclusion that matches nothing": f"{_STORE}parameters: {{excluded_namespaces: ['acme/*']}}\n",
    "A broker that is excluded without its port: a warning": f"{_STORE}parameters: {{excluded_brokers: [broker-1]}}\n",
    "A capacity without brokers": f"{_STORE}capacity: {{nic_gbps: 10}}\n",
    "A key of the top in a section": f"{_STORE}leadership: {{member_id: keel-1}}\n",
    "The brokers' shedding": f"{_STORE}parameters: {{loadBalancerSheddingEnabled: false}}\n",
    "A parameter at the top": f"{_STORE}max_moves_per_hour: 20\n",
    "A key of the brokers": f"{_STORE}managedLedgerDefaultAckQuorum: 2\n",
    "An address where a host belongs": f"{_STORE}api: {{allowed_hosts: ['http://keel.example.com']}}\n",
    "A number where a text belongs": "cluster: 12\nmetadata_store: zk:127.0.0.1:2181/pulsar\n",
    "A store without its scheme's form": "metadata_store: zookeeper://somewhere\n",
    "A blank in the addresses of a store": "metadata_store: zk:zk-1:2181, zk-2:2181\n",
    "The chroot after each host": "cluster: pulsar-1\nmetadata_store: zk:zk-1:2181/pulsar,zk-2:2181/pulsar\n",
    "A port that is not a number": f"{_STORE}api: {{port: eighty}}\n",
    "A port that does not exist": "cluster: pulsar-1\nmetadata_store: zk:127.0.0.1:21811111/pulsar\n",
    "No address to listen on": f"{_STORE}api: {{host: ''}}\n",
    "No socket and no tokens: a warning": f"{_STORE}api: {{socket: null}}\n",
    "A certificate without its key": f"{_STORE}api: {{tls: {{cert_file: server.pem}}}}\n",
    "A duration below its limit": f"{_STORE}cycle: {{interval: 10ms}}\n",
    "An unknown log level": f"{_STORE}logging: {{level: loud}}\n",
    "What a window allows, misspelt": f"{_STORE}windows:\n  - {{cron: '0 22 * * *', minutes: 480, allow: al}}\n",
    "A capacity that contradicts itself": f"{_STORE}capacity:\n  'b-*': {{cpu: ignore, cores: 8}}\n",
    "A capacity that never counts: a warning": (
        f"{_STORE}capacity:\n  'broker-*': {{nic_gbps: 10}}\n  'broker-1*': {{nic_gbps: 25}}\n"
    ),
    "A window at an hour that there is not": (
        f"{_STORE}windows:\n  - {{cron: '0 25 * * *', minutes: 60, allow: act}}\n"
    ),
    "A quota group of a tenant without its kind": (
        f"{_STORE}quotas: {{groups: {{acme: {{members: [acme], publish_bytes: 10MB}}}}}}\n"
    ),
    "An unknown source of counters": f"{_STORE}counters: {{source: graphite}}\n",
    "Prometheus as the source, and no address of it": f"{_STORE}counters: {{source: prometheus}}\n",
    "A token file that does not exist": f"{_STORE}admin: {{token_file: /nowhere/token}}\n",
    "Two mistakes at once": f"{_STORE}mode: acts\ncycle: {{interval: soon}}\n",
    "A star without quotes": f"{_STORE}capacity:\n  *: {{nic_gbps: 10}}\n",
    "A colon without a blank": f"mode:act\n{_STORE}",
    "A tab": f"{_STORE}cycle:\n\tinterval: 5s\n",
    "Text that is not YAML": "metadata_store: [zk\n",
}
# What is wrong -> the arguments and what is on standard input.
COMMANDS: Final = {
    "A settings file that does not exist": (("config", "check", "nowhere.yaml"), ""),
    "An unknown scenario": (("simulate", "idle"), ""),
    "A broker that is not named": (("drain", "--yes", "--reason", "upgrade"), ""),
    "An unknown form of output": (("status", "-o", "xml"), ""),
    "A time that cannot be read": (("summary", "--since", "yesteryear"), ""),
    "No sidecar is running": (("pause", "--reason", "upgrade", "--socket", "nowhere.sock"), ""),
    "A folder of history that does not exist": (("history", "check", "--history", "nowhere"), ""),
    "An unknown command": (("statsu",), ""),
    "An unknown option": (("transfer", "--force"), ""),
    "A text where a number belongs": (("journal", "--limit", "many"), ""),
    "A number out of the range of an option": (("journal", "--limit", "0"), ""),
    "A time without a unit": (("journal", "--since", "24"), ""),
    "A variable of a shell that is not set": (("uncordon", "", "--reason", "disks are in"), ""),
    "A namespace without its tenant": (("bundles", "-n", "orders"), ""),
    "What can be no name of a bundle or topic": (("pin", "shop//created", "--reason", "hot"), ""),
    "A limit of waiting where nobody waits": (("drain", "b1:8080", "--within", "1h"), ""),
    "Waiting for a dry run": (("drain", "b1:8080", "--wait"), ""),
    "An impossible address": (("status", "--url", "http://127.0.0.1:99999"), ""),
    "Options that contradict each other": (("plan", "--ignore-hit-counts", "--keep-hit-counts"), ""),
    "A parameter without its value": (("plan", "--set", "move_price"), ""),
    "A parameter, misspelt": (("plan", "--set", "cpu_wait=1"), ""),
    "A parameter out of its range": (("plan", "--set", "max_moves_per_hour=-5"), ""),
    "A broker to add that cannot be one": (("plan", "--add-broker", "b4/8080"), ""),
    "Seeds in the wrong order": (("simulate", "--suite", "--seeds", "5-1"), ""),
    "A name of a token with a space": (("token", "new", "ann lee"), ""),
    "A file of a token that does not exist": (("status", "--url", "http://127.0.0.1:8090", "--token-file", "none"), ""),
    "A takeover of a whole tenant": (("takeover", "--namespace", "shop", "--reason", "try it"), ""),
    "A time to wait with an unknown unit": (
        ("drain", "b1:8080", "--yes", "--reason", "upgrade", "--wait", "--within", "2 hours"),
        "",
    ),
    "Settings that name no store": (("doctor",), ""),
    "`decide`: text that is not JSON": (("decide",), "{brokers}\n"),
    "`decide`: a figure that cannot be read": (
        ("decide",),
        json.dumps({"brokers": {"b1:8080": {"cpu": {"usage": "much", "limit": 400}}}}) + "\n",
    ),
    "`decide`: a value of the wrong unit": (
        ("decide",),
        json.dumps({"reset": {"strategy": "avg", "config": {"maxUnloadPercentage": "half"}}}) + "\n",
    ),
}
# What is wrong -> the arguments, to a sidecar that leads three brokers, b1:8080 to b3:8080, in mode `recommend`.
REFUSALS: Final = {
    "A broker that is not registered": ("drain", "b9:8080"),
    "A bundle that does not exist": ("transfer", "shop/orders/0x00000000_0x40000000", "--to", "b2:8080"),
    "A namespace where a bundle or topic belongs": ("why", "shop/orders"),
    "A mode above that of the settings file": ("mode", "act", "--reason", "go live"),
    "The end of a pause that does not exist": ("resume", "--reason", "all well"),
    "The end of a cordon that does not exist": ("uncordon", "b1:8080", "--reason", "disks are in"),
    "A plan that no longer exists": ("plan", "execute", "5f0c3a1be2d4977a", "--reason", "even it out"),
    "A task that does not exist": ("stop", "t-9", "--reason", "too slow"),
}
# The same, to a sidecar without a seat.
WITHOUT_SEAT: Final = {"A plan of a sidecar without a seat": ("plan",)}
# What is wrong -> method, path and body.
REQUESTS: Final[Mapping[str, tuple[str, str, Any]]] = {
    "A scale below zero": ("POST", "/api/v1/plans", {"traffic_scale": -1}),
    "An unknown field": ("POST", "/api/v1/pause", {"reason": "upgrade", "untill": 0}),
    "A field that is missing": ("POST", "/api/v1/pause", {}),
    "A limit out of its range": ("GET", "/api/v1/journal?limit=0", None),
    "An unknown kind of record": ("GET", "/api/v1/journal?kind=moves", None),
    "A body that is not an object": ("POST", "/api/v1/pause", ["upgrade"]),
}
# What is wrong with a pause that comes over TCP -> its token, or the role of one; None: `api.auth` is not configured.
PAUSES: Final[Mapping[str, str | None]] = {
    "A change over TCP while `api.auth` is not configured": None,
    "No token where one is needed": "",
    "A token that is not in the file": "wrong",
    "A token of a role that is too low": "viewer",
}
_ALL: Final[tuple[Mapping[str, Any], ...]] = (SETTINGS, COMMANDS, REFUSALS, WITHOUT_SEAT, REQUESTS, PAUSES)


def wrong_inputs_page() -> str:
    """The page."""
    lines = [
        "# Wrong inputs and what is answered",
        "",
        f"<!-- {NOTE} -->",
        "",
        f"{sum(map(len, _ALL))} wrong inputs, given to the product by the generator of this",
        "page. A message names the field, the value and what is allowed, or the next step.",
        "",
    ]
    with apart():
        lines += ["## Settings files (`bundlekeel config check`)", ""]
        for title, text in SETTINGS.items():
            Path(_FILE).write_text(text, encoding="utf-8")
            shown = text or "(nothing)\n"
            lines += [f"### {title}", "", "```yaml", *shown.splitlines(), "```", "", *_ran("config", "check", _FILE)]
        lines += ["## Command line", ""]
        for title, (arguments, given) in COMMANDS.items():
            lines += [f"### {title}", "", *(["```", *given.splitlines(), "```", ""] if given else [])]
            lines += _ran(*arguments, given=given)
        lines += ["## What a running sidecar refuses", ""]
        lines += ["It leads the brokers `b1:8080`, `b2:8080` and `b3:8080` in mode `recommend`.", ""]
        with structlog.testing.capture_logs(), _Sidecars():
            for socket, refused in (("a.sock", REFUSALS), ("b.sock", WITHOUT_SEAT)):
                os.environ["BUNDLEKEEL_SOCKET"] = socket
                for title, arguments in refused.items():
                    lines += [f"### {title}", "", *_ran(*arguments)]
        lines += ["## HTTP API", ""]
        for title, request in REQUESTS.items():
            lines += [f"### {title}", "", *asyncio.run(_asked(*request))]
        tokens = Tokens(Path())
        for title, token in PAUSES.items():
            lines += [f"### {title}", "", *asyncio.run(_paused(tokens, token))]
    return "\n".join(lines)


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """In an empty folder, with nothing of this machine's environment that the product heeds."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BUNDLEKEEL")}
    told = {"COLUMNS": _COLUMNS, "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC"}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), mock.patch.dict(os.environ, clear=True):
        os.environ.update(kept | told)
        time.tzset()
        yield
    time.tzset()


def _ran(*arguments: str, given: str = "") -> list[str]:
    """A command as it is typed, what it printed, and its exit code."""
    raw, code = io.BytesIO(), 0
    out = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
        mock.patch.object(sys, "argv", ["bundlekeel", *arguments]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode()))),
    ):
        try:
            wiring.main()
        except SystemExit as end:
            code = int(end.code or 0)
    printed = [line.rstrip() for line in raw.getvalue().decode().strip().splitlines()]
    return ["```text", f"$ {shlex.join(('bundlekeel', *arguments))}", *printed, f"(exit code {code})", "```", ""]


class _Sidecars(LoopThread):
    """Two sidecars over fakes, of which one has a seat and leads, behind the sockets `a.sock` and `b.sock`."""

    def __init__(self) -> None:
        super().__init__("refusing sidecars")
        self._servers: list[ApiServer] = []

    async def _listen(self) -> None:
        cluster = FakeCluster()
        for name in ("a", "b"):
            made = FakeSidecar(cluster, name, mode="recommend", settings={"leadership.seats": 1})
            made.leadership.member = replace(made.leadership.member, url=f"http://{name}:8090")
            await made.lead()
            if made.leadership.role == "leader":
                await made.cycle.turn()
            self._servers.append(ApiServer(made.service, "127.0.0.1", 0, Path(f"{name}.sock")))
            await self._servers[-1].start()

    async def _close(self) -> None:
        for server in self._servers:
            await server.stop()


async def _paused(tokens: Tokens, token: str | None) -> list[str]:
    access = None if token is None else access_for(tokens)
    headers = {"Authorization": f"Bearer {tokens.tokens.get(token, token)}"} if token else {}
    return await _asked(
        "POST", "/api/v1/pause", {"reason": "upgrade"}, headers, mutations=access is not None, access=access
    )


async def _asked(
    method: str,
    path: str,
    body: Any,
    headers: Mapping[str, str] = MappingProxyType({}),
    *,
    mutations: bool = True,
    access: AccessRules | None = None,
) -> list[str]:
    """A request and its answer. None of these reaches the service behind the API."""
    app = create_app(cast(Service, None), mutations=mutations, access=access)
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        # One that the request brings: pages are made anew, and compared.
        answer = await client.request(method, path, json=body, headers={"X-Request-ID": EXAMPLE_ID, **headers})
    told = json.dumps(answer.json(), indent=1, ensure_ascii=False).splitlines()
    sent = f"{method} {path}" + ("" if body is None else f"  {json.dumps(body)}")
    return ["```text", sent, f"HTTP {answer.status_code}", *told, "```", ""]
