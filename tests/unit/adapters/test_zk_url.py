"""Store addresses: what Pulsar writes is understood, everything else is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.adapters.zookeeper.client import parse_store_url
from bundlekeel.core.model.errors import ConfigError


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("zk:h1:2181,h2:2182/pulsar", ("h1:2181,h2:2182", "/pulsar")),
        ("zk:h1:2181", ("h1:2181", "")),
        ("h1:2181,h2/a/b/", ("h1:2181,h2:2181", "/a/b")),
        ("zk:h1,h2/", ("h1:2181,h2:2181", "")),
        (" zk:h1:1, h2:2 ", ("h1:1,h2:2", "")),
        ("metadata-store:zk:h:2181/pulsar", ("h:2181", "/pulsar")),
        ("zk:[::1]:2181,[fe80::1]/p", ("[::1]:2181,[fe80::1]:2181", "/p")),
        ("zk:2181/p", ("zk:2181", "/p")),
        ("zookeeper-0.zk.svc:2181", ("zookeeper-0.zk.svc:2181", "")),
    ],
)
def test_what_pulsar_writes_is_understood(url: str, expected: tuple[str, str]) -> None:
    """Hosts get the default port, the chroot loses its last slash."""
    assert parse_store_url(url) == expected


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("etcd:http://h:2379", "etcd"),
        ("oxia://h:6648", "oxia"),
        ("rocksdb:///tmp/x", "rocksdb"),
        ("memory:local", "memory"),
        ("http://h:2181", "http"),
        ("zk://h:2181", "''"),
        ("zk:", "''"),
        ("", "''"),
        ("h1:2181,,h2", "''"),
        ("h:0", "h:0"),
        ("h:70000", "h:70000"),
        ("h:port", "h:port"),
        ("h:2181/a/../b", "chroot"),
    ],
)
def test_what_is_no_zookeeper_is_refused_by_name(url: str, named: str) -> None:
    """The error names the setting, what is wrong with it and what is allowed."""
    with pytest.raises(ConfigError, match=named) as caught:
        parse_store_url(url, field="stores.metadata")
    assert caught.value.field == "stores.metadata"
    assert caught.value.value == url
    assert "zk:" in caught.value.allowed


@given(st.text(max_size=40))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """No text does anything but parse or raise ConfigError, and what parses parses again to itself."""
    try:
        hosts, chroot = parse_store_url(text)
    except ConfigError:
        return
    assert parse_store_url(hosts + chroot) == (hosts, chroot)
