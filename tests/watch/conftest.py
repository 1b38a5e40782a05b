"""The tools these tests run: Prometheus and promtool."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.tools_prometheus import ensure


@pytest.fixture(scope="session")
def tools() -> dict[str, Path]:
    """Both programs, by name; installed when missing."""
    return ensure()
