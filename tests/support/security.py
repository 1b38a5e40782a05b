"""Certificates, keys and tokens for tests: a CA per test, leaves for loopback, JWTs signed with fresh keys."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import jwt
import trustme
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bundlekeel.api.auth import AccessRules
from bundlekeel.settings.credentials import Credentials, TokensFile, new_token
from bundlekeel.settings.jwt_keys import JwtKeys
from tests.support.contracts.admin import Recorder

ISSUER, AUDIENCE = "https://issuer.example", "bundlekeel"


class Issuer:
    """Signs JWTs; its public key is in `key_file`."""

    def __init__(self, directory: Path) -> None:
        self.key_file = directory / "jwt.pem"
        self.rotate()

    def rotate(self, *, keep: bool = False) -> None:
        """Sign with a new key from now on. `keep`: the key file also contains the old key."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = self._key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        before = self.key_file.read_bytes() if keep else b""
        self.key_file.write_bytes(before + public)

    def jwt(self, role: object = "viewer", **claims: Any) -> str:
        """Return a token that is valid for a minute. `claims` override its claims; None removes a claim."""
        payload = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 60, "role": role} | claims
        return jwt.encode({k: v for k, v in payload.items() if v is not None}, self._key, algorithm="ES256")

    def keys(self, role_claim: str = "role") -> JwtKeys:
        """Return the keys that verify the issuer's tokens."""
        return JwtKeys(self.key_file, issuer=ISSUER, audience=AUDIENCE, role_claim=role_claim)


class Tokens:
    """A file with one token for each role; `tokens[role]` is the token of `the-ROLE`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "tokens"
        values = {role: new_token(f"the-{role}", role) for role in ("viewer", "operator", "admin")}
        self.tokens = {role: token for role, (token, _) in values.items()}
        self.lines = {role: line for role, (_, line) in values.items()}
        self.write(*self.lines)

    def write(self, *roles: str, also: str = "") -> None:
        """Write the tokens of these roles only, then the text `also`."""
        self.path.write_text("# tokens\n\n" + "".join(self.lines[role] + "\n" for role in roles) + also)

    def headers(self, role: str) -> dict[str, str]:
        """The header its owner sends."""
        return {"Authorization": f"Bearer {self.tokens[role]}"}


class SteppedClock:
    """A clock whose seconds a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def boot(self) -> float:
        """Return the seconds that the test has set."""
        return self.now


def access_for(
    tokens: Tokens | None, issuer: Issuer | None = None, *, telemetry: Any = None, boot: Any = None, **more: Any
) -> AccessRules:
    """Return the access rules of a guard."""
    credentials = Credentials(TokensFile(tokens.path) if tokens else None, issuer.keys() if issuer else None)
    return AccessRules(
        credentials=credentials, telemetry=telemetry or Recorder(), boot=boot or SteppedClock().boot, **more
    )


class Certificates:
    """One CA and what it signs, as PEM files."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._ca = trustme.CA()
        self.ca = directory / f"{name}.pem"
        self._ca.cert_pem.write_to_path(self.ca)

    def issue(self, name: str, *identities: str, common_name: str | None = None) -> tuple[Path, Path]:
        """Issue a certificate and key for these host names or addresses. The same name again is a renewal."""
        leaf = self._ca.issue_cert(*(identities or ("localhost", "127.0.0.1")), common_name=common_name)
        cert, key = self._directory / f"{name}.crt", self._directory / f"{name}.key"
        # The key first: a reader between the two writes gets a pair that does not match, and keeps the earlier pair.
        leaf.private_key_pem.write_to_path(key)
        cert.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        return cert, key
