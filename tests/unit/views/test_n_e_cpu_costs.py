"""Learned CPU costs are shown to operators: in the API, in the wide table, and as metrics."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from bundlekeel.cli import tables as cli_tables
from bundlekeel.cli.output import TableLayout
from bundlekeel.leader.state.cycle_state import CycleState
from bundlekeel.leader.state.documents import LeaderState, decode, encode
from bundlekeel.model.load import CPU
from bundlekeel.views.picture import BrokerView
from tests.support.world import BROKERS, FakeCluster, FakeSidecar
from tests.unit.cli.test_channel import drawn


async def burning() -> FakeSidecar:
    """Return a sidecar after one cycle in which the last broker burns 60 points on no bundle."""
    cluster = FakeCluster()
    sidecar = await FakeSidecar(cluster, mode="recommend").lead()
    for item in (await cluster.source.picture()).reports:
        usage = item.usage.copy()
        usage[CPU] = 0.3 * usage[CPU] + (0.6 * item.limit[CPU] if item.broker_id == BROKERS[-1] else 0.0)
        cluster.source.put(replace(item, usage=usage))
    await sidecar.cycle.turn()
    return sidecar


def rows_of(sidecar: FakeSidecar) -> dict[str, BrokerView]:
    """Return the rows of the brokers' listing by broker."""
    rows = sidecar.service.brokers()
    return {row.broker: row for row in rows}


async def test_n_e_brokers_show_their_base_and_costs() -> None:
    """Each broker shows its base, and costs within their intervals."""
    rows = rows_of(await burning())
    costs = [row.cpu_costs for row in rows.values()]
    assert all(item is not None and item.message_seconds > 0 for item in costs)
    for item in costs:
        assert item is not None
        assert 0 <= item.message_seconds_low <= item.message_seconds <= item.message_seconds_high
        assert 0 <= item.byte_seconds_low <= item.byte_seconds <= item.byte_seconds_high
    last = rows[BROKERS[-1]].cpu_costs
    assert last is not None
    assert last.base_ratio == pytest.approx(0.6, abs=0.05)


async def test_n_e_metrics_have_base_costs_and_capacity() -> None:
    """Each broker has its series, those without traffic have no capacity."""
    sidecar = await burning()
    for name in ("base_ratio", "message_seconds", "byte_seconds"):
        assert sidecar.metric(f"broker_cpu_{name}").count("broker=") == len(BROKERS)
    assert sidecar.metric("broker_cpu_capacity_msg_rate").count("broker=") == 1


async def test_n_e_the_wide_table_has_costs() -> None:
    """The column shows the base, the cost of a message and of a megabyte, and the capacity."""
    text = drawn(cli_tables.brokers(list(rows_of(await burning()).values()), TableLayout(wide=True, width=400)), 400)
    assert "CPU costs" in text
    assert "us/message" in text
    assert "us/MB" in text


async def test_n_e_a_new_leader_continues_with_the_costs() -> None:
    memory = (await burning()).cycle.cycle_state.memory
    assert memory.costs.brokers
    stored = decode(encode(LeaderState(cycle_state=CycleState(memory=memory))), LeaderState)
    assert msgspec.to_builtins(stored.cycle_state.memory.costs) == msgspec.to_builtins(memory.costs)
