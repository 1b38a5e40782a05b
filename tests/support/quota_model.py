"""A model of the rates and ResourceGroups that brokers store, for the in-memory admin API and the HTTP server."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import numpy as np

from bundlekeel.model.errors import AdminRefused, AdminUnreachable
from bundlekeel.ports.commands import Permit
from bundlekeel.quotas.ports import NamespaceRates
from bundlekeel.quotas.rules.rate_plan import PolicyKey, Rate
from bundlekeel.quotas.rules.resource_group_plan import ResourceGroup
from bundlekeel.quotas.rules.usage import TopicRates, topic_of

if TYPE_CHECKING:
    from tests.support.memory_admin import BrokerModel


class QuotaModel:
    """Topic policies, namespace policies and ResourceGroups. `on`: whether brokers have topic policies."""

    def __init__(self, topics: Callable[[], Collection[str]]) -> None:
        self._topics = topics
        self.on = True
        self.rates: dict[PolicyKey, Rate] = {}
        self.namespaces: dict[str, NamespaceRates] = {}
        self.groups: dict[str, ResourceGroup] = {}
        self.attached: dict[str, str] = {}

    def refusal(self, topic: str) -> tuple[int, str] | None:
        """Return why a policy of this topic can neither be read nor set."""
        if not self.on:
            return 405, "Topic level policies is disabled, to enable the topic level policy and retry."
        if topic not in {topic_of(name) for name in self._topics()}:
            return 404, f"Topic {topic} not found"
        return None

    def set_rate(self, place: PolicyKey, rate: Rate | None) -> None:
        """Set the rate of a topic or namespace; None removes it."""
        if rate is None:
            self.rates.pop(place, None)
        else:
            self.rates[place] = rate

    def remove_group(self, name: str) -> tuple[int, str] | None:
        """Remove a ResourceGroup. Return None, or the status and reason of the refusal."""
        if name not in self.groups:
            return 404, "ResourceGroup does not exist"
        if name in self.attached.values():
            return 412, f"Resource-group {name} is in use"
        del self.groups[name]
        return None

    def attach(self, namespace: str, name: str) -> tuple[int, str] | None:
        """Attach a namespace to a ResourceGroup; the name "" detaches it. Return None, or status and reason of the
        refusal."""
        if name and name not in self.groups:
            return 412, "ResourceGroup does not exist"
        if name:
            self.attached[namespace] = name
        else:
            self.attached.pop(namespace, None)
        return None


class MemoryQuotaAdmin:
    """`quotas.ports.QuotaAdmin` and `quotas.rate_commands.QuotaCommands` without a network.

    `fail("set_topic_rate", error)` scripts the next calls: None lets one pass."""

    def __init__(self, model: BrokerModel) -> None:
        self.model = model
        self.calls: list[tuple[str, ...]] = []
        self._faults: dict[str, deque[Exception | None]] = defaultdict(deque)

    def fail(self, method: str, *faults: Exception | None) -> None:
        """Script the next calls of a method."""
        self._faults[method].extend(faults)

    async def topic_rates(self, broker_id: str, namespaces: Collection[str]) -> TopicRates:
        self._enter("topic_rates", broker_id)
        if broker_id not in self.model.brokers:
            raise AdminUnreachable(f"{broker_id} is not registered")
        rates_by_topic = {}
        for bundle, owner in self.model.owners.items():
            if owner.broker_id == broker_id and bundle.rpartition("/")[0] in namespaces:
                loads = [self.model.loads[topic] for topic in self.model.topics[bundle] if topic in self.model.loads]
                for load in loads:
                    rate_in, rate_out, bytes_in, bytes_out = load.traffic
                    if not load.topic.rpartition("/")[2].startswith("__"):
                        rates_by_topic[load.topic] = (rate_in, bytes_in, rate_out, bytes_out)
        rates = np.array([rates_by_topic[name] for name in sorted(rates_by_topic)], dtype=np.float64).reshape(-1, 4)
        return TopicRates(broker_id, tuple(sorted(rates_by_topic)), rates)

    async def namespace_rates(self, namespace: str, cluster: str) -> NamespaceRates:
        self._enter("namespace_rates", namespace, cluster)
        rates = self.model.quotas.namespaces.get(namespace, NamespaceRates())
        if cluster != self.model.static[self.model.brokers[0]]["clusterName"]:
            rates = NamespaceRates()
        group = self.model.quotas.attached.get(namespace, "")
        return NamespaceRates(publish=rates.publish, dispatch=rates.dispatch, resource_group=group)

    async def topic_rate(self, place: PolicyKey, *, permit: Permit) -> Rate | None:
        permit()
        self._enter("topic_rate", place.topic, place.side)
        _raise(self.model.quotas.refusal(place.topic))
        return self.model.quotas.rates.get(place)

    async def set_topic_rate(self, place: PolicyKey, rate: Rate | None, *, permit: Permit) -> None:
        permit()
        self._enter("set_topic_rate", place.topic, place.side)
        _raise(self.model.quotas.refusal(place.topic))
        self.model.quotas.set_rate(place, rate)

    async def resource_group(self, name: str) -> ResourceGroup | None:
        self._enter("resource_group", name)
        return self.model.quotas.groups.get(name)

    async def set_resource_group(self, name: str, group: ResourceGroup | None, *, permit: Permit) -> None:
        permit()
        self._enter("set_resource_group", name)
        if group is None:
            _raise(self.model.quotas.remove_group(name))
        else:
            self.model.quotas.groups[name] = group

    async def attach(self, namespace: str, name: str, *, permit: Permit) -> None:
        permit()
        self._enter("attach", namespace, name)
        _raise(self.model.quotas.attach(namespace, name))

    def _enter(self, method: str, *arguments: str) -> None:
        self.calls.append((method, *arguments))
        fault = self._faults[method].popleft() if self._faults[method] else None
        if fault is not None:
            raise fault


def _raise(refusal: tuple[int, str] | None) -> None:
    if refusal is not None:
        raise AdminRefused(refusal[1], status=refusal[0], reason=refusal[1])
