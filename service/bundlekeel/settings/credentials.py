"""Authentication of API callers by bearer tokens, or by JWTs (`jwt_keys`).

A token is `bk.NAME.SECRET` with 256 random bits. A file, which is read again when it changes, contains one line per
token with the hash of its secret: `NAME ROLE scrypt$N$r$p$SALT$HASH`. Several lines may have the same name, so that a
token can be replaced.
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

from bundlekeel.model.errors import ConfigError
from bundlekeel.settings.files import read_bounded
from bundlekeel.settings.tls import stamp_of

if TYPE_CHECKING:
    from bundlekeel.settings.jwt_keys import JwtKeys

# In ascending order: each role includes the previous ones.
ROLES: Final = ("viewer", "operator", "admin")
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_@-]{0,63}")
_PREFIX: Final = "bk."
# Parameters of scrypt: an attempt takes 16 MiB and about 40 ms. This protects weak tokens if the file is stolen.
_N, _R, _P = 2**14, 8, 1
_MOST_MEMORY: Final = 128 * 2**20
_MOST_REMEMBERED: Final = 1000

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller. `role` "": the credentials contain no role."""

    name: str
    role: str

    def may(self, needed: str) -> bool:
        """Return whether the role is `needed` or higher."""
        return self.role in ROLES and ROLES.index(self.role) >= ROLES.index(needed)


@dataclass(frozen=True, slots=True)
class TokenLine:
    """One line of the tokens file: name, role, and the hash of the token's secret."""

    principal: Principal
    n: int
    r: int
    p: int
    salt: bytes
    digest: bytes

    def matches(self, secret: str) -> bool:
        """Return whether `secret` is the token's secret, in a time that does not depend on it."""
        digest = _hashed(secret, self.salt, self.n, self.r, self.p, len(self.digest))
        return hmac.compare_digest(digest, self.digest)


_NO_PRINCIPAL: Final = TokenLine(Principal("", ""), _N, _R, _P, b"\0" * 16, b"\0" * 32)


def new_token(name: str, role: str) -> tuple[str, str]:
    """Return a new token and its line for the tokens file. Raises ConfigError if name or role is invalid."""
    if NAME.fullmatch(name) is None:
        raise ConfigError(
            f"{name!r} is not a valid name", field="name", value=name, allowed="letters, digits, _ - @, up to 64"
        )
    if role not in ROLES:
        raise ConfigError(f"{role!r} is not a role", field="role", value=role, allowed=", ".join(ROLES))
    secret, salt = secrets.token_urlsafe(32), secrets.token_bytes(16)
    digest = _hashed(secret, salt, _N, _R, _P, 32)
    hash_text = "$".join(["scrypt", str(_N), str(_R), str(_P), _text(salt), _text(digest)])
    return f"{_PREFIX}{name}.{secret}", f"{name} {role} {hash_text}"


def read_lines(text: str, origin: str) -> list[TokenLine]:
    """Parse the text of a tokens file and return its lines, without empty lines and comments (#).

    Raises ConfigError with the number of a malformed line, but not its text, which may be a token."""
    lines = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                lines.append(_line(line.split()))
            except ValueError:
                allowed = "name, role, hash as `bundlekeel token new` prints them"
                raise ConfigError(
                    f"{origin}: line {number} is not the line of a token (allowed: {allowed})",
                    field="api.auth.tokens_file",
                    allowed=allowed,
                ) from None
    return lines


class TokensFile:
    """The hashed tokens of a file. If a changed file is unreadable or malformed, the previous lines stay in effect, and
    an error is logged. If the file is deleted, no token is accepted."""

    def __init__(self, path: Path) -> None:
        """Read the file. Raises ConfigError if it is unreadable or a line is malformed."""
        self._path = path
        self._stamp = stamp_of(path)
        self._lines = read_lines(read_file(path, "api.auth.tokens_file").decode("utf-8", "replace"), str(path))
        self._key = secrets.token_bytes(32)
        self._remembered: dict[bytes, Principal] = {}

    def recall(self, token: str) -> Principal | None:
        """Return the caller (principal) of a token that `check` accepted since the file changed; else None. Fast."""
        self._refresh()
        return self._remembered.get(self._mark(token))

    def check(self, token: str) -> Principal | None:
        """Return the caller (principal) of a token; None: invalid. Run it in a thread: it needs about 40 ms of CPU."""
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
        """Return the key under which a checked token is cached, which is not the token itself."""
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
            effect = "the last ones stay valid" if stamp is not None else "the file is gone, so no token is accepted"
            _log.warning("API tokens cannot be read", error=str(error), effect=effect)
            if stamp is not None:
                return
            lines = []
        self._lines, self._remembered = lines, {}


class Credentials:
    """Checks callers by tokens, JWTs or both."""

    def __init__(self, tokens: TokensFile | None, keys: JwtKeys | None) -> None:
        self._tokens = tokens
        self._keys = keys

    def recall(self, token: str) -> Principal | None:
        """Return the caller (principal) of a token if no slow hash is needed to check it; else None."""
        if token.startswith(_PREFIX):
            return self._tokens.recall(token) if self._tokens is not None else None
        return self._keys.check(token) if self._keys is not None else None

    def check(self, token: str) -> Principal | None:
        """Return the caller of a token for which `recall` returned None; None: invalid. Run it in a thread."""
        if self._tokens is not None and token.startswith(_PREFIX):
            return self._tokens.check(token)
        return None


def _hashed(secret: str, salt: bytes, n: int, r: int, p: int, size: int) -> bytes:
    return hashlib.scrypt(secret.encode(), salt=salt, n=n, r=r, p=p, dklen=size, maxmem=_MOST_MEMORY + 2**20)


def _line(parts: Sequence[str]) -> TokenLine:
    """Parse a line of the tokens file. Raises ValueError if it is malformed or its parameters are out of range."""
    name, role, hash_text = parts
    scheme, n, r, p, salt, digest = hash_text.split("$")
    line = TokenLine(Principal(name, role), int(n), int(r), int(p), _bytes(salt), _bytes(digest))
    fits = 128 * line.n * line.r <= _MOST_MEMORY and line.n > 1 and line.n & (line.n - 1) == 0 and line.r > 0
    is_valid = scheme == "scrypt" and role in ROLES and NAME.fullmatch(name) is not None
    if not (fits and is_valid and 1 <= line.p <= 16 and len(line.salt) >= 8 and 16 <= len(line.digest) <= 64):
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
