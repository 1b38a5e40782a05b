"""The secrets of a secured cluster: a CA and certificates, signed tokens, ZooKeeper users.

They are created at the start, in the directory of the run, and only its owner can read them.

Roles of Pulsar: `admin`, `broker` and `bundlekeel` are super-users, each with its own token. Bundlekeel needs this
right to unload bundles. `client` can produce and consume where it has permission. Users of ZooKeeper: `pulsar` (brokers
and bookie) and `bundlekeel`.
"""

from __future__ import annotations

import datetime
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

ROLES = ("admin", "broker", "bundlekeel", "client")
SUPER_USERS = ("admin", "broker", "bundlekeel")
STORE_USERS = ("pulsar", "bundlekeel")
_VALID = datetime.timedelta(days=2)
_TOKEN_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
_TOKEN_CLIENT = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
_DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
# Turn FIPS mode off: it is on by default since ZooKeeper 3.9, and excludes DIGEST-MD5.
_ALLOW_DIGEST = "-Dzookeeper.fips-mode=false"


@dataclass(frozen=True, slots=True)
class Pair:
    """A PEM certificate and its key (PKCS 8)."""

    cert: Path
    key: Path


class Security:
    """The files of a secured cluster below one directory."""

    def __init__(self, directory: Path, hosts: list[str]) -> None:
        """Create all certificates, tokens and passwords. `hosts`: the loopback addresses on which servers listen."""
        directory.mkdir(mode=0o700)
        self.directory = directory
        self.ca = directory / "ca.pem"
        self._ca_key = ec.generate_private_key(ec.SECP256R1())
        self._ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bundlekeel local CA")])
        self._write("ca.pem", self._sign_ca().public_bytes(Encoding.PEM))
        self.broker = self.issue("broker", hosts)
        self.zookeeper = self.issue("zookeeper", hosts)
        self.bundlekeel = self.issue("bundlekeel", hosts)
        # ZooKeeper reads key and certificate from one PEM file.
        both = self.zookeeper.key.read_bytes() + self.zookeeper.cert.read_bytes()
        self.zookeeper_store = self._write("zookeeper-both.pem", both)
        self._token_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        public = self._token_key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.token_public_key = self._write("token-public.der", public)
        self.tokens: Mapping[str, Path] = {
            role: self._write(f"{role}.token", self.token(role).encode()) for role in ROLES
        }
        self.passwords: Mapping[str, str] = {user: secrets.token_hex(16) for user in STORE_USERS}
        self.server_jaas = self._write("zookeeper.jaas", self._server_jaas().encode())
        self.client_jaas = self._write("pulsar.jaas", self._client_jaas("pulsar").encode())

    def issue(self, name: str, hosts: list[str]) -> Pair:
        """Issue a certificate for these addresses and for localhost. A second call with the same name renews the
        certificate.
        """
        # RSA, because every Java library that reads PEM keys supports it.
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        names: list[x509.GeneralName] = [x509.DNSName("localhost")]
        names += [x509.IPAddress(ipaddress.ip_address(host)) for host in dict.fromkeys(("127.0.0.1", *hosts))]
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            self._unsigned(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .sign(self._ca_key, SHA256())
        )
        key_path = self._write(f"{name}.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return Pair(self._write(f"{name}.crt", certificate.public_bytes(Encoding.PEM)), key_path)

    def token(self, role: str, **claims: object) -> str:
        """Return a JWT that Pulsar accepts for this role."""
        return jwt.encode({"sub": role, **claims}, self._token_key, algorithm="RS256")

    # --- what the processes are told -------------------------------------------------------------------------

    def zookeeper_settings(self, port: int) -> dict[str, str]:
        """Return lines of zoo.cfg. The port without TLS stays open for the command "srvr". Both ports refuse sessions
        without SASL.
        """
        return {
            "secureClientPort": str(port),
            "secureClientPortAddress": "127.0.0.1",
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": str(self.zookeeper_store),
            "ssl.keyStore.type": "PEM",
            "ssl.trustStore.location": str(self.ca),
            "ssl.trustStore.type": "PEM",
            "ssl.clientAuth": "none",
            "authProvider.sasl": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "sessionRequireClientSASLAuth": "true",
        }

    def zookeeper_flags(self) -> list[str]:
        """Return JVM flags of the ZooKeeper server. Passwords are in a file, because others can read command lines."""
        return [f"-Djava.security.auth.login.config={self.server_jaas}", _ALLOW_DIGEST]

    def store_client_flags(self) -> list[str]:
        """Return JVM flags of the clients of ZooKeeper: brokers, the bookie, and the tool that creates metadata."""
        return [
            f"-Djava.security.auth.login.config={self.client_jaas}",
            _ALLOW_DIGEST,
            "-Dzookeeper.client.secure=true",
            "-Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty",
            f"-Dzookeeper.ssl.trustStore.location={self.ca}",
            "-Dzookeeper.ssl.trustStore.type=PEM",
        ]

    def broker_settings(self, web_port: int, service_port: int) -> dict[str, str]:
        """Return lines of broker.conf: TLS ports only, tokens, authorization."""
        return {
            "brokerServicePort": "",
            "webServicePort": "",
            "brokerServicePortTls": str(service_port),
            "webServicePortTls": str(web_port),
            "tlsCertificateFilePath": str(self.broker.cert),
            "tlsKeyFilePath": str(self.broker.key),
            "tlsTrustCertsFilePath": str(self.ca),
            "authenticationEnabled": "true",
            "authenticationProviders": _TOKEN_PROVIDER,
            "tokenPublicKey": self.token_public_key.as_uri(),
            "tokenPublicAlg": "RS256",
            "authorizationEnabled": "true",
            "superUserRoles": ",".join(SUPER_USERS),
            "brokerClientTlsEnabled": "true",
            "brokerClientTrustCertsFilePath": str(self.ca),
            "brokerClientAuthenticationPlugin": _TOKEN_CLIENT,
            "brokerClientAuthenticationParameters": self.tokens["broker"].as_uri(),
            "tlsHostnameVerificationEnabled": "true",
        }

    # --- inside ----------------------------------------------------------------------------------------------

    def _write(self, name: str, data: bytes) -> Path:
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_bytes(data)
        return path

    def _unsigned(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._ca_name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            # Valid from a time in the past, because the clock of a machine after sleep can be late.
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + _VALID)
        )

    def _sign_ca(self) -> x509.Certificate:
        return (
            self._unsigned(self._ca_name, self._ca_key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._ca_key, SHA256())
        )

    def _server_jaas(self) -> str:
        users = " ".join(f'user_{name}="{password}"' for name, password in self.passwords.items())
        return f"Server {{ {_DIGEST} required {users}; }};\n"

    def _client_jaas(self, user: str) -> str:
        return f'Client {{ {_DIGEST} required username="{user}" password="{self.passwords[user]}"; }};\n'
