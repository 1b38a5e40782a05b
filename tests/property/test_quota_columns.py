"""Columns of quotas: the quick ways give what the plain ones give."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bundlekeel.quotas.rules.columns import in_order, runs
from bundlekeel.quotas.rules.groups import QuotaGroup, QuotaLimits, resolve
from bundlekeel.quotas.rules.usage import Catalogue, TopicRates, topic_of

MEMBERS = resolve(
    [QuotaGroup(name="g", limits=QuotaLimits(publish_messages=1), members=("t:acme",))], ["acme"], ["acme/ns"]
)
# How long an example takes says nothing on a busy machine.
QUICK = settings(deadline=None)


@QUICK
@given(st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 70_000) | st.integers(0, 3), max_size=40))
def test_order(numbers: list[int]) -> None:
    """Stable, for numbers of any size."""
    column = np.array(numbers, dtype=np.int64)
    assert in_order(column).tolist() == np.argsort(column, kind="stable").tolist()


@QUICK
@given(st.lists(st.integers(1, 4), min_size=1, max_size=40), st.integers(0, 2**32 - 1))
def test_runs(sizes: list[int], seed: int) -> None:
    """Sums and maxima, whether nearly all runs have one row or not."""
    rates = np.random.default_rng(seed).lognormal(3.0, 3.0, (sum(sizes), 4))
    starts = np.cumsum([0, *sizes[:-1]])
    total, peak = runs(rates, starts)
    assert np.allclose(total, np.add.reduceat(rates, starts), rtol=1e-12, atol=0)
    assert np.array_equal(peak, np.maximum.reduceat(rates, starts))


@settings(QUICK, max_examples=30)
@given(st.data())
def test_names_come_and_go(data: st.DataObject) -> None:
    """A catalogue with memory makes the same tables as an empty one."""
    catalogue = Catalogue()
    base = [f"persistent://{space}/ns/t{number:04}" for number in range(150) for space in ("acme", "other")]
    base += [f"persistent://acme/ns/p{number // 4:04}-partition-{number % 4}" for number in range(300)]
    for _ in range(4):
        out = data.draw(st.sets(st.integers(0, len(base) - 1), max_size=5))
        swapped = data.draw(st.booleans())
        names = [name for row, name in enumerate(base) if row not in out]
        names = names[::-1] if swapped else names
        more = data.draw(st.lists(st.integers(0, 9), unique=True, max_size=3))
        names = names[:7] + [f"persistent://acme/ns/new{number}" for number in more] + names[7:]
        rates = np.arange(4.0 * len(names)).reshape(-1, 4)
        reports = [TopicRates("b1", tuple(names[:200]), rates[:200]), TopicRates("b2", tuple(names[200:]), rates[200:])]
        table, plain = catalogue.table(reports, MEMBERS), Catalogue().table(reports, MEMBERS)
        bases = Counter(topic_of(name) for name in names if topic_of(name) != name)
        assert table.seen == bases
        assert table.keys == tuple(sorted({("g", topic_of(name)) for name in names if "://acme/" in name}))
        assert (table.keys, table.brokers, dict(table.seen)) == (plain.keys, plain.brokers, dict(plain.seen))
        for column in ("key", "broker", "group", "rates"):
            assert np.array_equal(getattr(table, column), getattr(plain, column))
