"""JWTs as credentials of the API: what they must say, who must have signed them, and keys that are rotated."""

from __future__ import annotations

import base64
import hmac
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from fastapi import FastAPI

from bundlekeel.model.errors import ConfigError
from bundlekeel.settings.credentials import TokensFile
from bundlekeel.settings.jwt_keys import JwtKeys
from tests.support.apps import create_app
from tests.support.security import AUDIENCE, ISSUER, Issuer, access_for
from tests.support.shop import Shop
from tests.unit.api.test_routes import client


def guarded(issuer: Issuer) -> FastAPI:
    """The TCP app that takes this issuer's tokens."""
    return create_app(Shop().service, mutations=True, access=access_for(None, issuer))


@pytest.mark.parametrize(
    ("claims", "status"),
    [
        ({}, 200),
        ({"role": ["none", "admin", "viewer"]}, 200),
        ({"role": "boss"}, 403),
        ({"role": None}, 403),
        ({"role": ["boss", 7, {}]}, 403),
        ({"exp": 1}, 401),
        ({"exp": None}, 401),
        ({"nbf": 4_000_000_000}, 401),
        ({"iss": "https://other.example"}, 401),
        ({"aud": "other"}, 401),
        ({"aud": None}, 401),
        ({"sub": None}, 401),
        ({"sub": "two\nlines"}, 401),
        ({"sub": "x" * 500}, 401),
    ],
)  # fmt: skip
async def test_what_a_jwt_must_say(tmp_path: Path, claims: dict[str, Any], status: int) -> None:
    """Signature, issuer, audience, expiry and a name; the role decides the rest."""
    issuer = Issuer(tmp_path)
    async with client(guarded(issuer)) as http:
        header = {"Authorization": f"Bearer {issuer.jwt(**({'role': 'viewer'} | claims))}"}
        assert (await http.get("/api/v1/state", headers=header)).status_code == status


async def test_a_jwt_signed_by_somebody_else(tmp_path: Path) -> None:
    """Another key, no signature, or the public key used as a shared secret: all refused."""
    (tmp_path / "other").mkdir()
    issuer, other = Issuer(tmp_path), Issuer(tmp_path / "other")
    payload = issuer.jwt("admin").split(".")[1]
    none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0"
    hmac_header = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"
    mac = hmac.digest(issuer.key_file.read_bytes(), f"{hmac_header}.{payload}".encode(), "sha256")
    confused = f"{hmac_header}.{payload}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"
    async with client(guarded(issuer)) as http:
        for token in (other.jwt("admin"), f"{none}.{payload}.", confused):
            answer = await http.get("/api/v1/state", headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == 401


async def test_jwt_keys_are_read_again(tmp_path: Path) -> None:
    """While keys are rotated both count; then only the new one; a file without keys keeps the last."""
    issuer = Issuer(tmp_path)
    old = issuer.jwt()
    async with client(guarded(issuer)) as http:

        async def status(token: str) -> int:
            return (await http.get("/api/v1/state", headers={"Authorization": f"Bearer {token}"})).status_code

        issuer.rotate(keep=True)
        assert [await status(old), await status(issuer.jwt())] == [200, 200]
        issuer.rotate()
        assert [await status(old), await status(issuer.jwt())] == [401, 200]
        issuer.key_file.write_text("half a ke")
        assert await status(issuer.jwt()) == 200
        issuer.key_file.unlink()
        assert await status(issuer.jwt()) == 401


def test_nested_role_claims(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path)
    keys = issuer.keys("realm_access.roles")
    result = keys.check(issuer.jwt(None, realm_access={"roles": ["offline", "operator"]}))
    assert result is not None and result.role == "operator"
    assert (keys.check(issuer.jwt("admin", realm_access="x")) or result).role == ""


def test_a_file_without_public_key_is_refused(tmp_path: Path) -> None:
    """At the start; also a certificate or a private key is none."""
    (tmp_path / "k.pem").write_text("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")
    with pytest.raises(ConfigError, match="no public key"):
        JwtKeys(tmp_path / "k.pem", issuer=ISSUER, audience=AUDIENCE, role_claim="role")
    with pytest.raises(ConfigError, match="cannot be read"):
        JwtKeys(tmp_path / "none", issuer=ISSUER, audience=AUDIENCE, role_claim="role")
    with pytest.raises(ConfigError, match="cannot be read"):
        TokensFile(tmp_path / "none")


def pem(bits: int) -> bytes:
    """An RSA public key of this size."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=bits).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def test_s17_short_keys_and_too_many_keys_are_refused(tmp_path: Path) -> None:
    """The message names the size or the number, and what is allowed."""
    file = tmp_path / "k.pem"
    for content, words in ((pem(1024), "1024 bits; 2048 to 16384"), (pem(2048) * 21, "21 public keys; at most 20")):
        file.write_bytes(content)
        with pytest.raises(ConfigError, match=words):
            JwtKeys(file, issuer=ISSUER, audience=AUDIENCE, role_claim="role")
    file.write_bytes(pem(2048) * 20)
    JwtKeys(file, issuer=ISSUER, audience=AUDIENCE, role_claim="role")


@pytest.mark.timeout(20)
def test_s17_a_file_of_beginnings_is_read_in_one_pass(tmp_path: Path) -> None:
    """A mebibyte of beginnings without an end was searched once for each of them, which took 303 s."""
    (tmp_path / "k.pem").write_bytes(b"-----BEGIN PUBLIC KEY-----\n" * 38_000)
    with pytest.raises(ConfigError, match="no public key"):
        JwtKeys(tmp_path / "k.pem", issuer=ISSUER, audience=AUDIENCE, role_claim="role")
