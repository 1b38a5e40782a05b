"""One JVM with Pulsar's real classes for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dev.oracle import Oracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """The Java oracle; compiled on first use."""
    with Oracle() as running:
        yield running
