"""Security settings: authentication and TLS of the API, identity and TLS for the metadata store."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from bundlekeel.settings.types import InvalidSetting, Section, together


class ApiAuthSettings(Section):
    """Authentication of the API over TCP. Without tokens and JWTs, TCP has no mutating routes."""

    tokens_file: Path | None = Field(
        default=None, description="file of lines `name role hash` from `bundlekeel token new`; re-read when it changes"
    )
    jwt_key_file: Path | None = Field(
        default=None,
        description="PEM public keys of accepted JWTs (several during a rotation); re-read on change",
    )
    jwt_issuer: str | None = Field(default=None, description="required `iss` of JWTs; needed with jwt_key_file")
    jwt_audience: str | None = Field(default=None, description="required `aud` of JWTs; needed with jwt_key_file")
    jwt_role_claim: str = Field(
        default="role",
        min_length=1,
        description="claim with viewer, operator or admin, or a list that contains one; dots separate nested claims",
    )
    anonymous_reads: bool = Field(default=False, description="GET needs no credentials, only other requests do")
    failures_per_minute: int = Field(
        default=10, ge=1, le=10_000, description="failures from one address per minute before it gets 429"
    )
    peer_token_file: Path | None = Field(
        default=None,
        description="token for other sidecars (role operator, for dry runs); re-read when it changes",
    )

    @property
    def on(self) -> bool:
        """Whether credentials are configured."""
        return self.tokens_file is not None or self.jwt_key_file is not None

    @model_validator(mode="after")
    def _complete(self) -> ApiAuthSettings:
        for name in ("jwt_issuer", "jwt_audience"):
            if self.jwt_key_file is not None and not getattr(self, name):
                what = "needed with jwt_key_file: without it any token that one of these keys signed would be accepted"
                raise InvalidSetting(what, field=name, allowed=None)
        if self.anonymous_reads and not self.on:
            raise InvalidSetting("has no effect without tokens_file or jwt_key_file", field="anonymous_reads")
        return self


class ApiTlsSettings(Section):
    """HTTPS for the API, and the certificates for requests to other sidecars."""

    cert_file: Path | None = Field(default=None, description="PEM certificate chain; re-read when it changes")
    key_file: Path | None = Field(default=None, description="private key of cert_file, PEM, not encrypted")
    client_ca_file: Path | None = Field(
        default=None, description="PEM file of CAs; clients, also probes, need a certificate from one of these CAs"
    )
    trust_certs_file: Path | None = Field(
        default=None, description="PEM file that verifies other sidecars' certificates; null: the system's"
    )

    @property
    def on(self) -> bool:
        """Whether the API uses https."""
        return self.cert_file is not None

    @model_validator(mode="after")
    def _complete(self) -> ApiTlsSettings:
        together(self, "cert_file", "key_file")
        if self.client_ca_file is not None and self.cert_file is None:
            raise InvalidSetting("has no effect without cert_file", field="client_ca_file")
        return self


class StoreSecuritySettings(Section):
    """Identity and TLS for ZooKeeper, used for both the metadata store and the configuration store."""

    sasl_username: str | None = Field(default=None, min_length=1, description="SASL DIGEST-MD5 user name")
    sasl_password: SecretStr | None = Field(default=None, description="password of this user; a secret file is safer")
    acl: Literal["auto", "creator", "open"] = Field(
        default="auto",
        description="access to created nodes: creator (only this identity), open (all), auto (creator if there is an "
        "identity, else open)",
    )
    tls: bool = Field(default=False, description="use TLS; the address then has ZooKeeper's secure client port")
    tls_trust_certs_file: Path | None = Field(
        default=None, description="PEM file of trusted certificates; null: the system's"
    )
    tls_cert_file: Path | None = Field(default=None, description="PEM client certificate chain")
    tls_key_file: Path | None = Field(default=None, description="private key of the client certificate, PEM")
    tls_verify: bool = Field(default=True, description="verify certificate and host name of ZooKeeper")

    @field_validator("sasl_username")
    @classmethod
    def _plain_name(cls, value: str | None) -> str | None:
        if value is not None and (not value.isprintable() or any(sign in value for sign in ' "\\,:')):
            raise InvalidSetting("must be without spaces, quotes, commas and colons")
        return value

    @model_validator(mode="after")
    def _complete(self) -> StoreSecuritySettings:
        together(self, "sasl_username", "sasl_password")
        together(self, "tls_cert_file", "tls_key_file")
        for name in ("tls_trust_certs_file", "tls_cert_file"):
            if getattr(self, name) is not None and not self.tls:
                raise InvalidSetting("has no effect unless store.tls is true", field=name)
        if self.acl == "creator" and not self.has_identity:
            raise InvalidSetting(
                "nodes need an identity that may use them: set sasl_username or tls_cert_file", field="acl"
            )
        return self

    @property
    def has_identity(self) -> bool:
        """Whether the sidecar has an identity for ZooKeeper: a user name or a client certificate."""
        return self.sasl_username is not None or self.tls_cert_file is not None
