"""Who somebody is: bearer tokens kept as hashes in a file that is read again when it changes, or JWTs (`jwt_keys`).

A token is `bk.NAME.SECRET` with 256 random bits; its line in the file is `NAME ROLE scrypt$N$r$p$SALT$HASH`. The same
name may stand on several lines, while a token is being replaced.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from bundlekeel.core.model.errors import ConfigError
from bundlekeel.settings.files import read_bounded
from bundlekeel.tls import stamp_of

if TYPE_CHECKING:
    from bundlekeel.settings.jwt_keys import JwtKeys

# Each may do what those before it may.
ROLES: Final = ("viewer", "operator", "admin")
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_@-]{0,63}")
_PREFIX: Final = "bk."
# 16 MiB and some 40 ms a guess. The secret has 256 bits: this protects a weak token when the file is stolen.
_N, _R, _P = 2**14, 8, 1
_MOST_MEMORY: Final = 128 * 2**20
_MOST_REMEMBERED: Final = 1000

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody whose credentials hold. `role` is "" when they give none."""

    name: str
    role: str

    def may(self, needed: str) -> bool:
        """Whether the role is `needed` or above."""
        return self.role in ROLES and ROLES.index(self.role) >= ROLES.index(needed)


@dataclass(frozen=True, slots=True)
class TokenLine:
    """One line of the file: who, as what, and the hash of the secret."""

    principal: Principal
    n: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    def matches(self, secret: str) -> bool:
        """Whether this is the secret; takes as long either way."""
        made = _hashed(secret, self.salt, self.n, self.r, self.p, len(self.digest))
        return hmac.compare_digest(made, self.digest)


_NO_PRINCIPAL: Final = TokenLine(Principal("", ""), _N, _R, _P, b"\0" * 16, b"\0" * 32)


def new_token(name: str, role: str) -> tuple[str, str]:
    """A fresh token, and the line to keep. ConfigError for a name or role that cannot be."""
    if NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{name!r} is not a valid name", field="name", value=name, allowed="letters, digits, _ - @, up to 64"
        )
    if role not in ROLES:
        raise ConfigError(f"{role!r} is not a role", field="role", value=role, allowed=", ".join(ROLES))
    secret, salt = secrets.token_urlsafe(32), secrets.token_bytes(16)
    digest = _hashed(secret, salt, _N, _R, _P, 32)
    kept = "$".join(["scrypt", str(_N), str(_R), str(_P), _text(salt), _text(digest)])
    return f"{_PREFIX}{name}.{secret}", f"{name} {role} {kept}"


def read_lines(text: str, origin: str) -> list[TokenLine]:
    """The lines of a file; empty ones and those that begin with # are left out. ConfigError names a wrong one by its
    number only: who writes a token in there by mistake shall not find it in a log."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                found.append(_line(line.split()))
            except ValueError:
                allowed = "name, role, hash as `bundlekeel token new` prints them"
                raise ConfigError(
                    f"{origin}: line {number} is not the line of a token (allowed: {allowed})",
                    field="api.auth.tokens_file",
                    allowed=allowed,
                ) from None
    return found


class TokensFile:
    """The hashed tokens. A file that has become unreadable or wrong leaves the last good lines in force and says so;
    a missing file means that no token is accepted."""

    def __init__(self, path: Path) -> None:
        """ConfigError when it cannot be read, or a line of it is wrong."""
        self._path = path
        self._stamp = stamp_of(path)
        self._lines = read_lines(read_file(path, "api.auth.tokens_file").decode("utf-8", "replace"), str(path))
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, Principal] = {}

    def recall(self, token: str) -> Principal | None:
        """Whose token it is, if it was checked before and the file is the same. Cheap."""
        self._refresh()
        return self._remembered.get(self._mark(token))

    def check(self, token: str) -> Principal | None:
        """Whose token it is. Takes some 40 ms of CPU, whether there is such a name or not: to be run in a thread."""
        name, _, secret = token.removeprefix(_PREFIX).partition(".")
        lines = self._lines
        candidates = [line for line in lines if line.principal.name == name] or [_NO_PRINCIPAL]
        matching = [line.principal for line in candidates if line.matches(secret)]
        if not matching or not matching[0].name:
            return None
        if lines is self._lines:
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[self._mark(token)] = matching[0]
        return matching[0]

    def _mark(self, token: str) -> bytes:
        """What a checked token is remembered by: not the token itself."""
        return hmac.digest(self._key, token.encode(), "sha256")

    def _refresh(self) -> None:
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            lines = read_lines(
                read_file(self._path, "api.auth.tokens_file").decode("utf-8", "replace"), str(self._path)
            )
        except ConfigError as error:
            _log.warning("api tokens cannot be read", error=str(error), kept=stamp is not None)
            if stamp is not None:
                return
            lines = []
        self._lines, self._remembered = lines, {}


class Credentials:
    """Tokens, JWTs or both."""

    def __init__(self, tokens: TokensFile | None, keys: JwtKeys | None) -> None:
        self._tokens = tokens
        self._keys = keys

    def recall(self, token: str) -> Principal | None:
        """Who that is, as far as it can be told at once."""
        if token.startswith(_PREFIX):
            return self._tokens.recall(token) if self._tokens is not None else None
        return self._keys.check(token) if self._keys is not None else None

    def check(self, token: str) -> Principal | None:
        """Who that is, after `recall` said None. May take a moment: to be run in a thread."""
        if self._tokens is not None and token.startswith(_PREFIX):
            return self._tokens.check(token)
        return None


def _hashed(secret: str, salt: bytes, n: int, r: int, p: int, size: int) -> bytes:
    return hashlib.scrypt(secret.encode(), salt=salt, n=n, r=r, p=p, dklen=size, maxmem=_MOST_MEMORY + 2**20)


def _line(parts: Sequence[str]) -> TokenLine:
    """ValueError unless it is one."""
    name, role, kept = parts
    scheme, n, r, p, salt, digest = kept.split("$")
    line = TokenLine(Principal(name, role), int(n), int(r), int(p), _bytes(salt), _bytes(digest))
    fits = 128 * line.n * line.r <= _MOST_MEMORY and line.n > 1 and line.n & (line.n - 1) == 0 and line.r > 0
    known = scheme == "scrypt" and role in ROLES and NAME.fullmatch(name) is not None
    if not (fits and known and 1 <= line.p <= 16 and len(line.salt) >= 8 and 16 <= len(line.digest) <= 64):
        raise ValueError
    return line


def read_file(path: Path, field: str) -> bytes:
    """Read a file. Raises ConfigError naming `field` if it cannot be read or is too large."""
    try:
        return read_bounded(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", field=field, value=str(path)) from None


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
