"""Decisions of the wiring itself."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from bundlekeel.model.errors import StoreError
from bundlekeel.settings.load import load_settings
from bundlekeel.settings.model import ApiSettings, Settings
from bundlekeel.wiring.outside import connected, endpoints_of
from bundlekeel.wiring.security import advertised, served_hosts
from evidence.lean import listening


@pytest.mark.parametrize(
    ("url", "hosts"),
    [(None, ("proxy", "192.0.2.5")), ("http://keel-0.svc:8090", ("proxy", "keel-0.svc:8090", "192.0.2.5"))],
)
def test_the_advertised_address_is_served(url: str | None, hosts: tuple[str, ...]) -> None:
    """Other sidecars pass plans on under it; refusing it as a wrong Host would quietly keep them from the leader. So is
    where it listens, and by this host's name where that is everywhere."""
    settings = Settings(api=ApiSettings(host="192.0.2.5", advertised_url=url, allowed_hosts=("proxy",)))
    assert served_hosts(settings) == hosts
    everywhere = Settings(api=ApiSettings(host="0.0.0.0", advertised_url=url))
    assert served_hosts(everywhere) == (hosts[1:-1] if url else (socket.gethostname(),))


@pytest.mark.parametrize(
    ("api", "url"),
    [
        ({}, "http://127.0.0.1:8090"),
        ({"host": "0.0.0.0"}, f"http://{socket.gethostname()}:8090"),
        ({"host": "0.0.0.0", "advertised_url": "http://keel:1"}, "http://keel:1"),
    ],
)
def test_other_sidecars_never_get_a_loopback_address_of_ours(api: dict[str, str], url: str) -> None:
    """Bound to every address we are reached by name: 127.0.0.1 would make a follower ask itself."""
    settings = Settings(api=ApiSettings(**api))  # type: ignore[arg-type]
    assert advertised(settings, "http://127.0.0.1:8090") == url


def test_a_sidecar_loads_what_it_needs(tmp_path: Path) -> None:
    before = "import sys, atexit, gc; atexit.register(lambda: print(gc.get_freeze_count(), *sys.modules))"
    with listening(tmp_path, before=before) as process:
        process.terminate()
        frozen, *names = process.communicate()[0].split()
    loaded = set(names)
    assert int(frozen) > 50_000, "a full collection looks at all that is loaded, and holds the event loop meanwhile"
    assert {"bundlekeel.leader.runtime", "bundlekeel.api.app", "httpx", "structlog"} <= loaded
    needless = [
        "bundlekeel.simulator.cluster",
        "bundlekeel.recalibration.jobs",
        "bundlekeel.cli.tables",
        "bundlekeel.settings.jwt_keys",
    ]
    needless += ["cryptography", "jwt", "opentelemetry.sdk", "pandas", "pulsar", "pyarrow", "pygments", "rich.console"]
    assert not loaded & set(needless)


async def test_what_keeps_the_store_away_is_named() -> None:
    """`takeover` and `handback` say that nothing listens there, not that the brokers were not read yet."""
    loaded = load_settings(None, {"cluster": "c", "metadata_store": "zk:127.0.0.1:1"}, environ={})
    async with connected(loaded) as out:
        with pytest.raises(StoreError, match=r"zk:127\.0\.0\.1:1 cannot be used: .*refused"):
            await endpoints_of(loaded.settings, out, within=1.0)
