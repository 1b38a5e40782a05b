"""The HTTP client of the admin API with its collaborators, and helpers for its tests."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bundlekeel.pulsar.admin import AdminOptions, HttpBrokerAdmin
from bundlekeel.settings.token_source import TokenSource
from tests.support.contracts.admin import BUNDLE, Permit, Recorder, fill
from tests.support.http_brokers import Answer, HttpBrokers, Script
from tests.support.memory_source import RealClock


class Kit:
    """A client of the admin API, with the objects that it was created with."""

    def __init__(self, brokers: HttpBrokers, options: AdminOptions, token: TokenSource | None = None) -> None:
        self.telemetry, self.permit = Recorder(), Permit()
        self.admin = HttpBrokerAdmin(telemetry=self.telemetry, clock=RealClock(), token=token, options=options)
        self.admin.set_endpoints(brokers.endpoints())


@pytest.fixture
async def brokers() -> AsyncIterator[HttpBrokers]:
    """Return three brokers that behave unless scripted."""
    served = HttpBrokers()
    fill(served.model)
    async with served.serve():
        yield served


@pytest.fixture
async def kit(brokers: HttpBrokers) -> AsyncIterator[Kit]:
    """Return a client of these brokers."""
    result = Kit(brokers, AdminOptions(read_timeout=5))
    yield result
    await result.admin.close()


def redirect(to: str) -> Script:
    """Return a script that responds with a 307 to the same path and query at another origin."""
    return lambda request: Answer(status=307, headers={"Location": f"{to}{request.target}"})


async def unload(kit: Kit, brokers: HttpBrokers, at: int = 0) -> None:
    """Send an unload without destination to broker `at` (its index)."""
    await kit.admin.unload(BUNDLE, destination=None, at=brokers.ids[at], permit=kit.permit)


def self_signed(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return the path of a new certificate for 127.0.0.1, and a server's TLS context with it."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=127.0.0.1"
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return cert, context
