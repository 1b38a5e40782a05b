"""Checks JWTs with public keys from a file, which is read again when it changes.

This module is imported only if such a file is configured, because `jwt` and `cryptography` take 9 MB.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jwt
import structlog
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from bundlekeel.model.errors import ConfigError
from bundlekeel.settings.credentials import ROLES, Principal, read_file
from bundlekeel.settings.tls import stamp_of

_LEEWAY_SECONDS: Final = 10
# Shorter keys are not secure (NIST SP 800-131A). Much longer ones would take seconds to check.
_LEAST_BITS: Final = 2048
_MOST_BITS: Final = 16_384
# Limit, because each key may have to be tried for a token, on the event loop.
_MOST_KEYS: Final = 20
# The pattern allows no dash within a key, so that a file with many BEGIN lines and no END is searched in linear time.
_PEM = re.compile(rb"-----BEGIN PUBLIC KEY-----[A-Za-z0-9+/=\s]+-----END PUBLIC KEY-----")

_log = structlog.get_logger(__name__)


class JwtKeys:
    """Checks that a JWT is signed by one of these public keys, and has the required issuer and audience.

    Only asymmetric algorithms are accepted, so that a key from the file cannot sign a token."""

    def __init__(self, path: Path, *, issuer: str, audience: str, role_claim: str) -> None:
        """Read the keys. Raises ConfigError if the file contains no usable public key."""
        self._path = path
        self._issuer, self._audience, self._role_claim = issuer, audience, role_claim
        self._stamp = stamp_of(path)
        self._keys = _public_keys(path)

    def check(self, token: str) -> Principal | None:
        """Return the caller (principal) of a JWT; None: it is not valid. Takes little time."""
        self._refresh()
        for key, algorithms in self._keys:
            try:
                claims = jwt.decode(
                    token,
                    key,
                    algorithms=algorithms,
                    audience=self._audience,
                    issuer=self._issuer,
                    leeway=_LEEWAY_SECONDS,
                    options={"require": ["exp", "iss", "aud", "sub"]},
                )
            except (jwt.PyJWTError, ValueError, TypeError):
                continue
            name = claims["sub"]
            if isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable():
                return Principal(name, _highest(_claim(claims, self._role_claim)))
        return None

    def _refresh(self) -> None:
        stamp = stamp_of(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._keys = _public_keys(self._path)
        except ConfigError as error:
            effect = "the last ones stay valid" if stamp is not None else "the file is gone, so no JWT is accepted"
            _log.warning("JWT keys cannot be read", error=str(error), effect=effect)
            if stamp is None:
                self._keys = []


def _public_keys(path: Path) -> list[tuple[Any, list[str]]]:
    field = "api.auth.jwt_key_file"
    found: list[tuple[Any, list[str]]] = []
    blocks = _PEM.findall(read_file(path, field))
    if len(blocks) > _MOST_KEYS:
        raise ConfigError(
            f"{path} holds {len(blocks)} public keys; at most {_MOST_KEYS} are read",
            field=field,
            value=str(len(blocks)),
        )
    for block in blocks:
        try:
            key = load_pem_public_key(block)
        except ValueError:
            continue
        if isinstance(key, RSAPublicKey) and not _LEAST_BITS <= key.key_size <= _MOST_BITS:
            raise ConfigError(
                f"{path} holds an RSA key of {key.key_size} bits; {_LEAST_BITS} to {_MOST_BITS} are allowed",
                field=field,
                value=str(key.key_size),
            )
        if isinstance(key, RSAPublicKey):
            found.append((key, ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"]))
        elif isinstance(key, EllipticCurvePublicKey):
            found.append((key, {256: ["ES256"], 384: ["ES384"], 521: ["ES512"]}.get(key.curve.key_size, [])))
        elif isinstance(key, Ed25519PublicKey):
            found.append((key, ["EdDSA"]))
    if not found:
        raise ConfigError(f"{path} holds no public key (PEM; RSA, EC or Ed25519)", field=field, value=str(path))
    return found


def _claim(claims: Mapping[str, Any], path: str) -> Any:
    """Return a claim by its name, or by the names of nested claims with dots between them."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _highest(told: object) -> str:
    held = told if isinstance(told, list) else [told]
    return next((role for role in reversed(ROLES) if role in held), "")
