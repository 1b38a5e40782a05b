"""Recorded frames as dense arrays: content, averages, chunks, bytes."""

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
        """A world without moves is read from its files exactly as it was generated."""
        generated = dense(QUIET)
        traffic = traffic_of(frames(history(QUIET)), dtype=np.float64)
        same(traffic, generated, but=("per_unit", "start", "members", "texts", "traits"))
        assert parse_start(traffic).params.max_moves_per_cycle == 0
        recorded_periods, generated_periods = (list(periods(item)) for item in (traffic, generated))
        assert [period.conditions for period in recorded_periods] == [period.conditions for period in generated_periods]

    def test_single_precision_takes_half_the_room(self) -> None:
        """float32 keeps seven digits."""
        recorded = frames(history(QUIET))[:4]
        small, large = traffic_of(recorded), traffic_of(recorded, dtype=np.float64)
        assert small.rates.nbytes * 2 == large.rates.nbytes
        assert np.allclose(small.rates, large.rates, rtol=1e-6)

    def test_the_last_frame_of_a_period_counts(self) -> None:
        """Four pictures an hour, one period an hour."""
        recorded = frames(history(QUIET))
        traffic = traffic_of(recorded, period_ms=3_600_000)
        assert traffic.wall_ms.tolist() == [frame.document["wall_ms"] for frame in recorded[3::4]]

    def test_frames_out_of_order_are_refused(self) -> None:
        """Frames must be in ascending order of time."""
        recorded = frames(history(QUIET))[:3]
        with pytest.raises(HistoryError, match="order of time"):
            traffic_of([recorded[1], recorded[0]])

    def test_no_frame_is_refused(self) -> None:
        """Without frames there is no traffic."""
        with pytest.raises(HistoryError, match="no recorded cycle"):
            traffic_of([])

    def test_what_a_unit_of_traffic_uses(self) -> None:
        """CPU per unit of traffic is estimated to within a tenth, network use exactly."""
        generated = dense(replace(QUIET, weekly=0.0, spiky=0))
        slopes = estimate_slopes(generated.usage, generated.limit, generated.carried, generated.present)
        mean = generated.carried.mean(axis=0)
        moving = np.einsum("brk,bk->br", slopes, mean)
        truth = generated.usage.mean(axis=0)
        truth[:, CPU] -= IDLE * generated.limit[0, :, CPU]
        assert np.allclose(moving[:, CPU], truth[:, CPU], rtol=0.1)
        assert np.allclose(moving[:, 2:4], truth[:, 2:4], rtol=1e-3)

    def test_what_the_capacity_job_found_goes_before_estimates(self) -> None:
        """A broker with slopes of the capacity job uses them; others use estimates."""
        recorded = frames(history(QUIET))[:8]
        slopes = np.full((6, 4), 7.0)
        traffic = traffic_of(recorded, per_unit={"broker-0001:8080": slopes})
        assert (traffic.per_unit[1] == slopes).all()
        assert not (traffic.per_unit[0] == slopes).any()


class TestAverages:
    """`Averaging`."""

    def test_averages_equal_those_of_a_sidecar(self) -> None:
        """They are equal to the last bit, also if brokers report at different times."""
        traffic = hours(replace(BUSY, period_seconds=300), 0, 3)
        stamps = traffic.reported.copy()
        for period in range(traffic.periods):
            for row in range(len(traffic.brokers)):
                if period and (period + row) % 3:
                    stamps[period, row] = stamps[period - 1, row]
        traffic = replace(traffic, reported=stamps)
        ours, sidecars = Averaging(traffic), Averages()
        for period in range(traffic.periods):
            for row, broker in enumerate(traffic.brokers):
                rows = np.flatnonzero(traffic.owner[period] == row)
                sidecars.add_report(
                    BrokerReport(
                        broker_id=broker,
                        usage=traffic.usage[period, row],
                        limit=traffic.limit[0, row],
                        traffic=traffic.carried[period, row],
                        last_update=int(stamps[period, row]),
                        bundle_names=tuple(traffic.bundles[at] for at in rows),
                        bundle_traffic=traffic.rates[period, rows],
                        bundle_counts=traffic.counts[0, rows],
                    ),
                    now_ms=0,
                )
            ours.advance(traffic, period)
            short, long, samples = sidecars.columns(sidecars.rows(traffic.bundles))
            assert np.array_equal(short, ours.short)
            assert np.array_equal(long, ours.long)
            assert np.array_equal(samples, ours.samples)


class TestChunks:
    """`chunks`, `to_bytes`."""

    @pytest.mark.parametrize(("length", "warm"), [(7, 0), (7, 3), (24, 30), (1000, 5)])
    def test_every_period_is_counted_once(self, length: int, warm: int) -> None:
        """This holds for any warm-up. Each chunk starts with the averages of the whole."""
        traffic = hours(replace(BUSY, period_seconds=300), 0, 6)
        at = {period.wall_ms: period for period in periods(traffic)}
        counted: list[int] = []
        for chunk in chunks(traffic, length, warm):
            part = list(periods(chunk.traffic))
            counted += [period.wall_ms for period in part[chunk.warm :]]
            for period in part:
                assert np.array_equal(period.short, at[period.wall_ms].short)
                assert np.array_equal(period.rates, at[period.wall_ms].rates)
        assert counted == traffic.wall_ms.tolist()

    def test_senseless_chunks_are_refused(self) -> None:
        """A chunk needs at least one period."""
        traffic = hours(QUIET, 0, 2)
        with pytest.raises(ValueError, match="chunks of 0"):
            next(chunks(traffic, 0, 0))

    def test_bytes_and_back(self) -> None:
        """Decoding returns every member."""
        traffic = hours(QUIET, 2, 4)
        same(RecordedTraffic.from_bytes(traffic.to_bytes()), traffic)

    @pytest.mark.parametrize("data", [b"", b"PK\x03\x04 no archive", b"\x93NUMPY"])
    def test_other_bytes_are_refused(self, data: bytes) -> None:
        """The error is a HistoryError."""
        with pytest.raises(HistoryError, match="no traffic"):
            RecordedTraffic.from_bytes(data)

    def test_time_that_pictures_stood(self) -> None:
        """A frame lasts until the next one, but not over a gap of hours."""
        traffic = hours(replace(BUSY, period_seconds=300), 0, 4)
        wall_ms = traffic.wall_ms.copy()
        wall_ms[10:] += 2 * 3_600_000
        seconds = [period.seconds for period in periods(replace(traffic, wall_ms=wall_ms))]
        assert seconds == [300.0] * traffic.periods


class TestGenerator:
    """dev/history_model.py."""

    def test_a_part_is_that_part_of_the_whole(self) -> None:
        """Days can be generated one at a time."""
        world = replace(BUSY, days=2, period_seconds=600)
        generated, part = dense(world), dense(world, 100, 200)
        assert np.array_equal(part.rates, generated.rates[100:200])
        assert np.array_equal(part.usage, generated.usage[100:200])

    def test_seasons(self) -> None:
        """Afternoons above nights, working days above weekends, later weeks above earlier ones."""
        world = World(days=14, brokers=4, bundles=40, period_seconds=3600, growth=0.02, spiky=0)
        total = dense(world).rates[:, :, 0].sum(axis=1).reshape(14, 24)
        assert (total[:, 14] > 1.5 * total[:, 2]).all()
        assert total[5].mean() < 0.95 * total[4].mean()
        assert all(later.mean() > earlier.mean() for earlier, later in pairwise((total[:5], total[7:12])))

    def test_the_seed_decides(self) -> None:
        """The same seed gives the same world, another seed another one."""
        one, again, other = (dense(replace(QUIET, seed=seed), 0, 3).rates for seed in (1, 1, 2))
        assert np.array_equal(one, again)
        assert not np.array_equal(one, other)
