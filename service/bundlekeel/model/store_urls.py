"""Addresses of metadata stores in Pulsar's spelling (`metadataStoreUrl`, `configurationMetadataStoreUrl`)."""

from __future__ import annotations

import re

from bundlekeel.model.errors import ConfigError

DEFAULT_PORT = 2181

_HOST = re.compile(r"^(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?$")
_SCHEME = re.compile(r"^(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):")
_PORT_FIRST = re.compile(r"^\d+(?:[,/]|$)")
_ALLOWED = "zk:host:2181,host:2181/chroot, or the same without zk:"
_OTHER_STORES = {"etcd", "oxia", "rocksdb", "memory"}


def parse_store_url(url: str, *, field: str = "metadata_store") -> tuple[str, str]:
    """Split the address of ZooKeeper into hosts and chroot.

    `zk:h1:2181,h2:2181/pulsar` becomes `("h1:2181,h2:2181", "/pulsar")`; without a chroot, the second string is "". A
    bare host list is accepted too, as in Pulsar, and BookKeeper's prefix `metadata-store:` is dropped. Raises
    ConfigError if it is another kind of store or not an address.
    """
    text = url.strip().removeprefix("metadata-store:")
    rest = text.removeprefix("zk:")
    if text.startswith("zk:") and _PORT_FIRST.match(rest):
        rest = text  # A host with the name `zk`, with its port.
    scheme = _SCHEME.match(rest)
    if scheme is not None and _PORT_FIRST.match(rest[scheme.end() :]):
        scheme = None
    if scheme is not None and (scheme["scheme"] in _OTHER_STORES or rest[scheme.end() :].startswith("//")):
        raise ConfigError(
            f"{field}: Bundlekeel coordinates through ZooKeeper, {scheme['scheme']!r} is not supported "
            f"(got {url!r}). With such a store only `observe` over the admin API works.",
            field=field,
            value=url,
            allowed=_ALLOWED,
        )
    hosts, _, chroot = rest.partition("/")
    names = [_host(name.strip(), url, field) for name in hosts.split(",")]
    parts = [part for part in chroot.split("/") if part]
    if {".", ".."} & set(parts):
        raise ConfigError(f"{field}: the chroot of {url!r} is not a path", field=field, value=url, allowed=_ALLOWED)
    return ",".join(names), "".join(f"/{part}" for part in parts)


def _host(name: str, url: str, field: str) -> str:
    match = _HOST.match(name)
    port = int(match["port"] or DEFAULT_PORT) if match is not None else 0
    if match is None or not 0 < port < 65536:
        raise ConfigError(f"{field}: {name!r} in {url!r} is not host:port", field=field, value=url, allowed=_ALLOWED)
    return name if match["port"] else f"{name}:{DEFAULT_PORT}"
