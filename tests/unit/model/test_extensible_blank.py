"""Reports of extensible brokers from topic messages and admin responses: the start without data."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bundlekeel.model.codes import Code
from tests.support.book_bench import BUSY, HALF, A, B, Bench, C, X, Y, score
from tests.support.builders import NOW_MS


def test_nobody_heard_is_nobody_known() -> None:
    bench = Bench()
    for broker in (A, B, C):
        bench.poll(broker, **{X: BUSY})
    assert bench.codes() == dict.fromkeys((A, B, C), Code.NO_LOAD_DATA)
    bench.say(bench.load(A, 0.1, (0.0, 0.0, 0.0, 0.0)))
    assert (list(bench.reports()), set(bench.codes())) == ([A], {B, C})


def test_a_quiet_broker_is_filled_in_from_its_statistics() -> None:
    bench = Bench()
    bench.say(bench.load(A, 0.5, BUSY))
    bench.poll(A, **{X: BUSY})
    bench.poll(B, **{Y: HALF})
    bench.poll(C)
    broker_reports = bench.reports()
    assert [score(broker_reports[broker]) for broker in (A, B, C)] == pytest.approx([0.5, 0.5, 0.5])
    bench.say(bench.load(C, 0.1, (0.0, 0.0, 0.0, 0.0)))
    broker_reports = bench.reports()
    assert [score(broker_reports[broker]) for broker in (A, B, C)] == pytest.approx([0.5, 0.3, 0.1])
    assert broker_reports[B].faults == ((Code.IMPUTED_SCORE, "weightedMaxEMA"),)
    assert broker_reports[B].traffic.tolist() == list(HALF)
    assert (broker_reports[A].faults, broker_reports[C].faults) == ((), ())


def test_an_imputed_score_is_at_most_one() -> None:
    """An idle broker's score has little to do with its few bytes."""
    bench = Bench("all", A, B)
    bench.say(bench.load(A, 0.05, (0.0, 0.0, 10.0, 0.0)))
    bench.poll(A)
    bench.poll(B, **{Y: BUSY})
    assert score(bench.reports()[B]) == 1.0


def test_a_score_that_cannot_be_used_counts_as_unheard() -> None:
    """NaN in the score of one broker: its statistics and the others fill it in."""
    bench = Bench("all", A, B)
    bench.say(bench.load(A, 0.5))
    bench.poll(A, **{X: BUSY})
    bench.say(replace(bench.load(B, 0.0), faults=((Code.NOT_A_NUMBER, "weightedMaxEMA"),)))
    bench.poll(B, **{Y: BUSY})
    assert score(bench.reports()[B]) == pytest.approx(0.5)
    assert bench.reports()[B].faults == ((Code.IMPUTED_SCORE, "weightedMaxEMA"),)


def test_an_unheard_broker_is_as_busy_as_its_jvm_says() -> None:
    bench = Bench("all", A, B)
    bench.book.settings_of = lambda broker: {"loadBalancerCPUResourceWeight": "0.5"} if broker == B else None
    for broker, load in ((A, 0.9), (B, 0.2)):
        bench.poll(broker, **{X if broker == A else Y: BUSY})
        bench.book.reported_cpu(broker, 1.0, bench.now)
        assert broker in bench.codes()
        bench.book.reported_cpu(broker, load, bench.now)
    broker_reports = bench.reports()
    assert [score(broker_reports[broker]) for broker in (A, B)] == pytest.approx([0.9, 0.1])
    assert broker_reports[A].faults == ((Code.IMPUTED_SCORE, "weightedMaxEMA"),)
    bench.say(bench.load(B, 0.3, HALF))
    assert [score(bench.reports()[broker]) for broker in (A, B)] == pytest.approx([0.9, 0.3])
    bench.book.reported_cpu(A, 0.1, bench.now)
    assert score(bench.reports()[A]) == pytest.approx(0.5)


def test_a_broker_whose_jvm_is_about_to_tell_is_shown_by_its_traffic() -> None:
    bench = Bench("all", A, B)
    bench.say(bench.load(A, 0.5, BUSY))
    bench.poll(A, **{X: BUSY})
    bench.poll(B, **{Y: HALF})
    assert (score(bench.reports()[B]), bench.book.awaited(bench.now)) == (pytest.approx(0.5), [])
    bench.book.reported_cpu(B, 0.3, bench.now)
    assert (score(bench.reports()[B]), bench.book.awaited(bench.now)) == (pytest.approx(0.25), [B])
    bench.book.reported_cpu(B, None, bench.now)
    assert (score(bench.reports()[B]), bench.book.awaited(bench.now)) == (pytest.approx(0.5), [])


def test_cpu_is_asked_for_while_a_broker_is_not_heard() -> None:
    bench = Bench("all", A)
    assert bench.book.wants_cpu(A, bench.now)
    bench.book.reported_cpu(A, None, bench.now)
    assert not bench.book.wants_cpu(A, bench.now)
    bench.seconds = 6.0
    assert bench.book.wants_cpu(A, bench.now)
    bench.book.reported_cpu(A, 0.5, bench.now)
    bench.seconds = 35.0
    assert not bench.book.wants_cpu(A, bench.now)
    bench.seconds = 36.0
    assert bench.book.wants_cpu(A, bench.now)
    bench.say(bench.load(A, 0.4))
    assert not bench.book.wants_cpu(A, bench.now)
    assert not bench.book.wants_cpu("gone:1", bench.now)
    bench.register(A, started=NOW_MS + 40_001)
    assert bench.book.wants_cpu(A, bench.now)
