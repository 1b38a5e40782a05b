"""Random fault schedules on real processes: nothing is done that must not be done, as independent witnesses saw it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chaos.ground import TARGETS, carry_out, open_ground
from tests.chaos.stage import Stage
from tests.support.chaos.runner import NOT_HERE, SLOW, Ground
from tests.support.chaos.schedule import draw

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),
    # A question to a process that is stopped or killed meanwhile leaves its half of the connection to the collector.
    pytest.mark.filterwarnings("ignore:.*socket.*:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:unclosed.*socket:ResourceWarning"),
]

SHORT_SECONDS, LONG_SECONDS = 3.0, 11.0
DEFAULT, NIGHTLY = 6, 500
# Far from those that were looked at while the code was written.
FRESH = (*range(10_000, 10_064), *range(20_000, 20_100))


@pytest.fixture(scope="module")
def ground(whole_stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """One cluster and the same three sidecars for all schedules."""
    whole_stage.gather()
    with open_ground(whole_stage, tmp_path_factory.mktemp("ground")) as ground:
        yield ground


@pytest.mark.parametrize("seed", range(DEFAULT))
def test_short_schedules(whole_stage: Stage, ground: Ground, seed: int) -> None:
    """A few seconds each; replay one by its seed: `-k 'short_schedules and [7]'`."""
    schedule = draw(seed, SHORT_SECONDS, TARGETS, faults=(1, 3), scale=0.4, without=NOT_HERE | SLOW)
    carry_out(whole_stage, ground, schedule)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [*range(DEFAULT, NIGHTLY), *FRESH])
def test_long_schedules(whole_stage: Stage, ground: Ground, seed: int) -> None:
    """Run longer schedules, with brokers that are killed. With the repairs in between, all of them take three hours."""
    carry_out(whole_stage, ground, draw(seed, LONG_SECONDS, TARGETS, faults=(2, 6), scale=0.6, without=NOT_HERE))
