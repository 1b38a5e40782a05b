"""Checks of addresses in settings. Responses, logs and errors show addresses, so these must not contain credentials.

The reasons that these functions return never contain the address.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote, urlsplit

# Hosts that only this machine reaches, and hosts that mean all of its addresses.
LOOPBACK = ("localhost", "127.0.0.1", "::1")
WILDCARDS = ("0.0.0.0", "::")

CREDENTIALS = "contains credentials, but users can see addresses: pass the credentials by environment or file"

# In these schemes, the part before an `@` is the name of a container, a user or an account.
_NAMED = ("abfs", "abfss", "gcs", "gs", "hdfs", "sftp", "wasb", "wasbs")
_NO_PLACE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(:(?!//)|//)")
# A secret can contain a slash, which ends the authority early. But then the part after the colon is not a port.
_NO_PORT = re.compile(r"[^/?#:@\[\]]+:(?!\d*(?:[/?#,]|$))")
_SECRET_OPTION = re.compile(r"(?:^|_)(?:credentials?|key|password|secret|sig|signature|token)(?:_|$)")


def place_fault(text: str) -> str:
    """Return why `text` cannot be used as a directory or a URI without credentials; "" if it can."""
    if not text.strip() or _NO_PLACE.match(text):
        return "neither a folder nor a URI with ://"
    return credentials_fault(text)


def is_http_address(text: str) -> bool:
    """Return whether this is an absolute http(s) address without spaces."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and text.isascii() and " " not in text
        return usable and parts.port != 0  # Reading it raises ValueError for ports above 65535.
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
    """Return the local directory of a path or of a `file://` URI; "" if the address is of another store."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return text
    return unquote(rest) if scheme.lower() == "file" and rest.startswith("/") else ""


def below(uri: str, name: str) -> str:
    """Append a name to a directory or URI. Options of a URI (`?endpoint_override=...`) stay at its end."""
    path, mark, options = uri.partition("?") if "://" in uri else (uri, "", "")
    return f"{path.rstrip('/')}/{name}{mark}{options}"


def credentials_fault(text: str) -> str:
    """Return why `text` must not be shown; "" if it is not a URI or has no credentials in it."""
    scheme, mark, rest = text.partition("://")
    if not mark:
        return ""
    user, at, _ = unquote(re.split(r"[/?#]", rest, maxsplit=1)[0]).rpartition("@")
    in_authority = (at and (":" in user or scheme.lower() not in _NAMED)) or (not at and _NO_PORT.match(rest))
    options = parse_qsl(rest.partition("?")[2].partition("#")[0], keep_blank_values=True)
    in_options = any(
        _SECRET_OPTION.search(name.lower().replace("-", "_")) or credentials_fault(of) for name, of in options
    )
    return CREDENTIALS if in_authority or in_options else ""
