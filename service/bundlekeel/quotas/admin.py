"""Reads and writes rates and ResourceGroups through the brokers' admin REST API."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from bundlekeel.model.errors import AdminRefused
from bundlekeel.ports.commands import Permit
from bundlekeel.pulsar.admin import routes
from bundlekeel.pulsar.admin.failures import decoded_answer
from bundlekeel.pulsar.admin.routes import namespace_path, rate_path
from bundlekeel.pulsar.admin.transport import AdminCall, AdminHttp
from bundlekeel.pulsar.formats.topics import decode_topic_rates
from bundlekeel.quotas.ports import NamespaceRates
from bundlekeel.quotas.rates_json import (
    decode_namespace_rates,
    decode_rate,
    decode_resource_group,
    encode_rate,
    encode_resource_group,
)
from bundlekeel.quotas.rules.rate_plan import DISPATCH, PUBLISH, PolicyKey, Rate
from bundlekeel.quotas.rules.resource_group_plan import ResourceGroup
from bundlekeel.quotas.rules.usage import TopicRates

_PATHS: Final = {PUBLISH: "publishRate", DISPATCH: "dispatchRate"}
_NOT_FOUND: Final = 404


class HttpQuotaAdmin:
    """Implements `QuotaAdmin` and `QuotaCommands` with the connections of the admin client."""

    def __init__(self, http: AdminHttp) -> None:
        self._http = http

    async def topic_rates(self, broker_id: str, namespaces: Collection[str]) -> TopicRates:
        """Return the throughput of each topic or partition of these namespaces at a broker."""
        route = routes.TOPIC_STATS
        reply = await self._http.read(AdminCall(route=route, target=route.path()), at=broker_id)
        names = tuple(namespaces)
        rates = await decoded_answer(f"topics of {broker_id}", decode_topic_rates, reply.answer, namespaces=names)
        return TopicRates(broker_id, *rates)

    async def namespace_rates(self, namespace: str, cluster: str) -> NamespaceRates:
        """Return the rates in a namespace's policies. This request changes nothing at the brokers."""
        route = routes.NAMESPACE
        reply = await self._http.anywhere(AdminCall(route=route, target=namespace_path(route, namespace)))
        policies = await decoded_answer(
            f"policies of {namespace}", decode_namespace_rates, reply.answer, cluster=cluster
        )
        publish, dispatch, group = policies
        return NamespaceRates(publish=publish, dispatch=dispatch, resource_group=group)

    async def topic_rate(self, place: PolicyKey, *, permit: Permit) -> Rate | None:
        """Return the rate in a topic's own policy; None: it has no policy.

        Needs a permit like a write, because the request can make a broker load the topic's bundle.
        """
        route = routes.TOPIC_RATE
        target = rate_path(route, place.topic, _PATHS[place.side])
        reply = await self._http.anywhere(AdminCall(route=route, target=target, permit=permit))
        return await decoded_answer(f"{place.side} rate of {place.topic}", decode_rate, reply.answer, side=place.side)

    async def set_topic_rate(self, place: PolicyKey, rate: Rate | None, *, permit: Permit) -> None:
        """Set the rate in a topic's own policy; None: remove the policy."""
        route = routes.DELETE_TOPIC_RATE if rate is None else routes.SET_TOPIC_RATE
        content = b"" if rate is None else encode_rate(rate, place.side)
        target = rate_path(route, place.topic, _PATHS[place.side])
        await self._http.anywhere(AdminCall(route=route, target=target, content=content, permit=permit))

    async def resource_group(self, name: str) -> ResourceGroup | None:
        """Return a ResourceGroup; None: it does not exist. This request changes nothing at the brokers."""
        route = routes.RESOURCE_GROUP
        try:
            reply = await self._http.anywhere(AdminCall(route=route, target=route.path(name=name)))
        except AdminRefused as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return await decoded_answer(f"resource group {name}", decode_resource_group, reply.answer)

    async def set_resource_group(self, name: str, group: ResourceGroup | None, *, permit: Permit) -> None:
        """Create or change a ResourceGroup; None: remove it."""
        route = routes.DELETE_RESOURCE_GROUP if group is None else routes.SET_RESOURCE_GROUP
        content = b"" if group is None else encode_resource_group(group)
        await self._http.anywhere(AdminCall(route=route, target=route.path(name=name), content=content, permit=permit))

    async def attach(self, namespace: str, name: str, *, permit: Permit) -> None:
        """Attach a namespace to a ResourceGroup; "": detach it."""
        route = routes.ATTACH if name else routes.DETACH
        target = namespace_path(route, namespace, **({"name": name} if name else {}))
        await self._http.anywhere(AdminCall(route=route, target=target, permit=permit))
