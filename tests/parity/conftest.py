"""One JVM per release with Pulsar's real classes for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.oracle import Oracle
from dev.pulsar_releases import RELEASES


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """The Java oracle with the classes of 4.2; compiled on first use."""
    with Oracle() as running:
        yield running


@pytest.fixture(scope="session", params=RELEASES)
def each_oracle(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    """The Java oracle with the classes of each release, one after the other."""
    with Oracle(release=RELEASES[request.param]) as running:
        yield running
