"""Recorded frames as dense arrays: what is in them, averages, chunks, bytes."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
import pytest

from bundlekeel.model.averages import Averages
from bundlekeel.model.errors import HistoryError
from bundlekeel.model.load import CPU, BrokerReport
from bundlekeel.recalibration.backtest import RecordedTraffic, chunks, traffic_of
from bundlekeel.recalibration.backtest.frames import estimate_slopes
from bundlekeel.recalibration.backtest.periods import parse_start, periods
from bundlekeel.recalibration.backtest.traffic import Averaging
from dev.history_model import IDLE, World, dense
from tests.support.backtest_cases import BUSY, frames, history, hours

QUIET = World(days=1, brokers=4, bundles=40, period_seconds=900, recording=False, unequal=0.5)


def same(one: RecordedTraffic, other: RecordedTraffic, *, but: tuple[str, ...] = ()) -> None:
    """All members are equal, arrays value by value."""
    for item in fields(RecordedTraffic):
        if item.name not in but:
            a, b = getattr(one, item.name), getattr(other, item.name)
            assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b, item.name


class TestFromFrames:
    """`traffic_of`."""

    def test_recorded_arrays_are_those_of_the_generator(self) -> None:
        """A world in which nobody moves anything comes back as it was made, through files, to the last bit."""
        made = dense(QUIET)
        found = traffic_of(frames(history(QUIET)), dtype=np.float64)
        same(found, made, but=("per_unit", "start", "members", "texts", "traits"))
        assert parse_start(found).params.max_moves_per_cycle == 0
        told, made_up = (list(periods(traffic)) for traffic in (found, made))
        assert [period.conditions for period in told] == [period.conditions for period in made_up]

    def test_single_precision_takes_half_the_room(self) -> None:
        """float32 keeps seven digits."""
        given = frames(history(QUIET))[:4]
        small, large = traffic_of(given), traffic_of(given, dtype=np.float64)
        assert small.rates.nbytes * 2 == large.rates.nbytes
        assert np.allclose(small.rates, large.rates, rtol=1e-6)

    def test_the_last_frame_of_a_period_counts(self) -> None:
        """Four pictures an hour, one period an hour."""
        given = frames(history(QUIET))
        found = traffic_of(given, period_ms=3_600_000)
        assert found.wall_ms.tolist() == [frame.document["wall_ms"] for frame in given[3::4]]

    def test_frames_out_of_order_are_refused(self) -> None:
        """Time goes on."""
        given = frames(history(QUIET))[:3]
        with pytest.raises(HistoryError, match="order of time"):
            traffic_of([given[1], given[0]])

    def test_no_frame_is_refused(self) -> None:
        """There is nothing to take it from."""
        with pytest.raises(HistoryError, match="no recorded cycle"):
            traffic_of([])

    def test_what_a_unit_of_traffic_uses(self) -> None:
        """Estimated from the figures alone: the CPU that follows the traffic, to within a tenth, and the network."""
        made = dense(replace(QUIET, weekly=0.0, spiky=0))
        found = estimate_slopes(made.usage, made.limit, made.carried, made.present)
        mean = made.carried.mean(axis=0)
        moving = np.einsum("brk,bk->br", found, mean)
        truth = made.usage.mean(axis=0)
        truth[:, CPU] -= IDLE * made.limit[0, :, CPU]
        assert np.allclose(moving[:, CPU], truth[:, CPU], rtol=0.1)
        assert np.allclose(moving[:, 2:4], truth[:, 2:4], rtol=1e-3)

    def test_what_the_capacity_job_found_goes_before_estimates(self) -> None:
        """By broker."""
        given = frames(history(QUIET))[:8]
        told = np.full((6, 4), 7.0)
        found = traffic_of(given, per_unit={"broker-0001:8080": told})
        assert (found.per_unit[1] == told).all()
        assert not (found.per_unit[0] == told).any()


class TestAverages:
    """`Averaging`."""

    def test_they_are_those_of_the_daemon(self) -> None:
        """To the last bit, also where brokers report in turn."""
        given = hours(replace(BUSY, period_seconds=300), 0, 3)
        stamps = given.reported.copy()
        for period in range(given.periods):
            for row in range(len(given.brokers)):
                if period and (period + row) % 3:
                    stamps[period, row] = stamps[period - 1, row]
        given = replace(given, reported=stamps)
        ours, daemons = Averaging(given), Averages()
        for period in range(given.periods):
            for row, broker in enumerate(given.brokers):
                rows = np.flatnonzero(given.owner[period] == row)
                daemons.add_report(
                    BrokerReport(
                        broker_id=broker,
                        usage=given.usage[period, row],
                        limit=given.limit[0, row],
                        traffic=given.carried[period, row],
                        last_update=int(stamps[period, row]),
                        bundle_names=tuple(given.bundles[at] for at in rows),
                        bundle_traffic=given.rates[period, rows],
                        bundle_counts=given.counts[0, rows],
                    ),
                    now_ms=0,
                )
            ours.advance(given, period)
            short, long, samples = daemons.columns(daemons.rows(given.bundles))
            assert np.array_equal(short, ours.short)
            assert np.array_equal(long, ours.long)
            assert np.array_equal(samples, ours.samples)


class TestChunks:
    """`chunks`, `to_bytes`."""

    @pytest.mark.parametrize(("length", "warm"), [(7, 0), (7, 3), (24, 30), (1000, 5)])
    def test_every_period_is_counted_once(self, length: int, warm: int) -> None:
        """Whatever the warm-up; and each begins with the averages of the whole."""
        given = hours(replace(BUSY, period_seconds=300), 0, 6)
        at = {period.wall_ms: period for period in periods(given)}
        counted: list[int] = []
        for chunk in chunks(given, length, warm):
            part = list(periods(chunk.traffic))
            counted += [period.wall_ms for period in part[chunk.warm :]]
            for period in part:
                assert np.array_equal(period.short, at[period.wall_ms].short)
                assert np.array_equal(period.rates, at[period.wall_ms].rates)
        assert counted == given.wall_ms.tolist()

    def test_senseless_chunks_are_refused(self) -> None:
        """No period, or less than none to warm up."""
        given = hours(QUIET, 0, 2)
        with pytest.raises(ValueError, match="chunks of 0"):
            next(chunks(given, 0, 0))

    def test_bytes_and_back(self) -> None:
        """Everything comes back."""
        given = hours(QUIET, 2, 4)
        same(RecordedTraffic.from_bytes(given.to_bytes()), given)

    @pytest.mark.parametrize("data", [b"", b"PK\x03\x04 no archive", b"\x93NUMPY"])
    def test_other_bytes_are_refused(self, data: bytes) -> None:
        """With a typed error."""
        with pytest.raises(HistoryError, match="no traffic"):
            RecordedTraffic.from_bytes(data)

    def test_time_that_pictures_stood(self) -> None:
        """Until the next one; a gap of hours is not laid to the picture before it."""
        given = hours(replace(BUSY, period_seconds=300), 0, 4)
        wall_ms = given.wall_ms.copy()
        wall_ms[10:] += 2 * 3_600_000
        found = [period.seconds for period in periods(replace(given, wall_ms=wall_ms))]
        assert found == [300.0] * given.periods


class TestGenerator:
    """dev/history_model.py."""

    def test_a_part_is_that_part_of_the_whole(self) -> None:
        """Days can be made one by one."""
        world = replace(BUSY, days=2, period_seconds=600)
        made, part = dense(world), dense(world, 100, 200)
        assert np.array_equal(part.rates, made.rates[100:200])
        assert np.array_equal(part.usage, made.usage[100:200])

    def test_seasons(self) -> None:
        """Afternoons above nights, working days above weekends, later weeks above earlier ones."""
        world = World(days=14, brokers=4, bundles=40, period_seconds=3600, growth=0.02, spiky=0)
        total = dense(world).rates[:, :, 0].sum(axis=1).reshape(14, 24)
        assert (total[:, 14] > 1.5 * total[:, 2]).all()
        assert total[5].mean() < 0.95 * total[4].mean()
        assert all(later.mean() > earlier.mean() for earlier, later in pairwise((total[:5], total[7:12])))

    def test_the_seed_decides(self) -> None:
        """All of it."""
        one, again, other = (dense(replace(QUIET, seed=seed), 0, 3).rates for seed in (1, 1, 2))
        assert np.array_equal(one, again)
        assert not np.array_equal(one, other)
