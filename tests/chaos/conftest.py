"""One stage for the session, and before each test everything healthy with all traffic on one broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.stage import Stage, open_stage


@pytest.fixture(scope="session")
def whole_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Three modular brokers with fast statistics behind the recorder."""
    with open_stage(tmp_path_factory.mktemp("stage")) as stage:
        yield stage


@pytest.fixture
def stage(whole_stage: Stage) -> Stage:
    """The stage with every busy bundle on the first broker."""
    whole_stage.gather()
    return whole_stage
