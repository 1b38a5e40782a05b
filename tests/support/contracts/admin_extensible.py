"""Tests that a `BrokerAdmin` must pass over brokers of the extensible load manager. A test class inherits them.

`harness` yields an admin over a filled `ExtensibleModel`; the first broker leads, the second owns `BUNDLE`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from bundlekeel.model.channel_states import UnitState
from bundlekeel.model.errors import AdminFault, AdminRefused
from bundlekeel.ports.commands import by_person
from tests.support.contracts.admin import BUNDLE, OTHER, Admin
from tests.support.extensible_brokers import ExtensibleModel
from tests.support.memory_admin import UnloadSeen


@dataclass(frozen=True, kw_only=True)
class ExtensibleHarness:
    """A client of a model of three extensible brokers."""

    admin: Admin
    model: ExtensibleModel


class ExtensibleAdminContract:
    """The tests. A subclass provides the fixture `harness`."""

    async def test_a_transfer_is_finished_with_its_answer(self, harness: ExtensibleHarness) -> None:
        """When the owner responds, the channel contains Owned at the destination."""
        _, owner, third = harness.model.brokers
        answer = await harness.admin.unload(BUNDLE, destination=third, at=owner, permit=by_person)
        assert (answer.status, answer.hops) == (204, (owner,))
        assert harness.model.changes[-3:] == [
            (BUNDLE, UnitState.RELEASING, third, owner),
            (BUNDLE, UnitState.ASSIGNING, third, owner),
            (BUNDLE, UnitState.OWNED, third, owner),
        ]

    async def test_a_redirect_keeps_the_destination(self, harness: ExtensibleHarness) -> None:
        """Asked anywhere else, brokers send on to the owner with the destination; no leader is involved."""
        _, owner, third = harness.model.brokers
        answer = await harness.admin.unload(BUNDLE, destination=third, at=third, permit=by_person)
        assert (answer.status, answer.hops) == (204, (third, owner))
        assert harness.model.unloads == [
            UnloadSeen(at=third, bundle=BUNDLE, destination=third),
            UnloadSeen(at=owner, bundle=BUNDLE, destination=third),
        ]
        assert harness.model.owners[BUNDLE].broker_id == third

    async def test_a_transfer_to_the_same_broker_is_a_refusal(self, harness: ExtensibleHarness) -> None:
        """Brokers respond with a 500 but have changed nothing."""
        owner, before = harness.model.brokers[1], list(harness.model.changes)
        with pytest.raises(AdminRefused, match="cannot be transfer to same broker") as refused:
            await harness.admin.unload(BUNDLE, destination=owner, at=owner, permit=by_person)
        assert refused.value.status == 500
        assert not refused.value.outcome_unknown
        assert harness.model.changes == before

    async def test_a_transfer_not_finished_in_time_is_of_unknown_outcome(self, harness: ExtensibleHarness) -> None:
        """The broker's own time-out is a 500, but the transfer continues."""
        _, owner, third = harness.model.brokers
        harness.model.stuck_in = UnitState.ASSIGNING
        with pytest.raises(AdminFault) as fault:
            await harness.admin.unload(BUNDLE, destination=third, at=owner, permit=by_person)
        assert fault.value.outcome_unknown
        assert harness.model.units[BUNDLE].state == UnitState.ASSIGNING

    async def test_refusals(self, harness: ExtensibleHarness) -> None:
        """A destination that is not registered is refused; what no broker owns is left alone, with a 204."""
        owner, third = harness.model.brokers[1:]
        with pytest.raises(AdminRefused) as inactive:
            await harness.admin.unload(BUNDLE, destination="10.9.9.9:8080", at=owner, permit=by_person)
        assert inactive.value.status == 409
        assert (await harness.admin.unload(OTHER, destination=third, at=owner, permit=by_person)).status == 204
        assert OTHER not in harness.model.owners

    async def test_one_split_position_a_call(self, harness: ExtensibleHarness) -> None:
        """One divides, several are refused; both children are owned where the parent was, which is gone. The number of
        topics does not matter."""
        owner = harness.model.brokers[1]
        with pytest.raises(AdminRefused) as several:
            await harness.admin.split(BUNDLE, positions=[0x18000000, 0x20000000], at=owner, permit=by_person)
        assert several.value.status == 412
        assert (await harness.admin.split(BUNDLE, positions=[0x20000000], at=owner, permit=by_person)).status == 204
        children = ("public/default/0x00000000_0x20000000", "public/default/0x20000000_0x40000000")
        assert {b: o.broker_id for b, o in harness.model.owners.items()} == dict.fromkeys(children, owner)
        assert harness.model.changes[-4:] == [
            (BUNDLE, UnitState.SPLITTING, "", owner),
            (children[0], UnitState.OWNED, owner, ""),
            (children[1], UnitState.OWNED, owner, ""),
            (BUNDLE, UnitState.DELETED, "", owner),
        ]
