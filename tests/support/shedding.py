"""Broker responses about their own shedding."""

from __future__ import annotations

from collections.abc import Iterable

from bundlekeel.ports import BrokerAdmin
from bundlekeel.requests.takeover import ENABLED, SHEDDING


async def sheds_itself(admin: BrokerAdmin, brokers: Iterable[str]) -> dict[str, bool]:
    """For each broker whether its own shedding is on: that switch, and the load balancer's."""
    answers = {broker: await admin.runtime_configuration(broker) for broker in brokers}
    return {
        broker: all(values[key].lower() == "true" for key in (ENABLED, SHEDDING)) for broker, values in answers.items()
    }
