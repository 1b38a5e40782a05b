"""Addresses as people write them. They are shown in settings, answers, logs and errors, so none may hold credentials.

The reasons given here never repeat the text.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote, urlsplit

from bundlekeel.core.model.errors import ConfigError

# Hosts that only this machine reaches, and those that stand for all of its addresses.
LOOPBACK = ("localhost", "127.0.0.1", "::1")
WILDCARDS = ("0.0.0.0", "::")

CREDENTIALS = "holds credentials, and addresses are shown: give them to the client by environment or file"

# What stands before an `@` there is the name of a container, a user or an account.
_NAMED = ("abfs", "abfss", "gcs", "gs", "hdfs", "sftp", "wasb", "wasbs")
_NO_PLACE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(:(?!//)|//)")
# A secret may hold a slash, and is then no part of the authority any more; but it is no port.
_NO_PORT = re.compile(r"[^/?#:@\[\]]+:(?!\d*(?:[/?#,]|$))")
_SECRET_OPTION = re.compile(r"(?:^|_)(?:credentials?|key|password|secret|sig|signature|token)(?:_|$)")


def place_fault(text: str) -> str:
    """Why this names neither a folder nor a URI with `://` without credentials; "" when it does."""
    if not text.strip() or _NO_PLACE.match(text):
        return "neither a folder nor a URI with ://"
    return credentials_fault(text)


def is_http_address(text: str) -> bool:
    """Whether this is an absolute http(s) address without spaces."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and text.isascii() and " " not in text
        return usable and parts.port != 0  # reading it refuses those above 65535
    except ValueError:
        return False


def host_and_port(url: str) -> tuple[str, int | None]:
    """Return host and port of a URL that another process wrote; ("", None) if it is not a URL."""
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.port
    except ValueError:
        return "", None


def folder_named(text: str) -> str:
    """The folder of this machine that this names; "" for another store."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return text
    return unquote(rest) if scheme.lower() == "file" and rest.startswith("/") else ""


def credentials_fault(text: str) -> str:
    """Why this may not be shown; "" for what is not a URI, or holds no credentials."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return ""
    user, at, _ = unquote(re.split(r"[/?#]", rest, maxsplit=1)[0]).rpartition("@")
    held = (at and (":" in user or scheme.lower() not in _NAMED)) or (not at and _NO_PORT.match(rest))
    options = parse_qsl(rest.partition("?")[2].partition("#")[0], keep_blank_values=True)
    told = any(_SECRET_OPTION.search(name.lower().replace("-", "_")) or credentials_fault(of) for name, of in options)
    return CREDENTIALS if held or told else ""


# Store addresses as Pulsar writes them (`metadataStoreUrl`, `configurationMetadataStoreUrl`).

DEFAULT_PORT = 2181

_HOST = re.compile(r"^(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>\d{1,5}))?$")
_SCHEME = re.compile(r"^(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):")
_PORT_FIRST = re.compile(r"^\d+(?:[,/]|$)")
_ALLOWED = "zk:host:2181,host:2181/chroot, or the same without zk:"
_OTHER_STORES = {"etcd", "oxia", "rocksdb", "memory"}


def parse_store_url(url: str, *, field: str = "metadata_store") -> tuple[str, str]:
    """Split `zk:h1:2181,h2:2181/pulsar` into `("h1:2181,h2:2181", "/pulsar")`; no chroot is `""`.

    A bare host list is taken too, as Pulsar does, and BookKeeper's `metadata-store:` in front is dropped.
    Raises ConfigError that names `field` for another kind of store and for anything that is no address.
    """
    text = url.strip().removeprefix("metadata-store:")
    rest = text.removeprefix("zk:")
    if text.startswith("zk:") and _PORT_FIRST.match(rest):
        rest = text  # a host that happens to be called `zk`, with its port
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
