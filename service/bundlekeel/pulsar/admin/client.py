"""`HttpBrokerAdmin`: client of the brokers' admin REST API, which implements the interface `ports.BrokerAdmin`.

Requests about one broker go to that broker. Requests that any broker can answer (dynamic configuration) go to the first
that responds.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bundlekeel.model.counters import CounterReading
from bundlekeel.model.errors import AdminApiError, AdminFault, AdminRefused, UnknownHostRedirect
from bundlekeel.model.extensible import BundleLoads
from bundlekeel.planning.guard.rate import ClientSigns
from bundlekeel.planning.splitting.algorithms import SplitAlgorithm
from bundlekeel.ports import BrokerEndpoint, Clock, Telemetry, TopicLoad
from bundlekeel.ports.commands import LookAgain, Permit, UnloadAnswer, no_look
from bundlekeel.pulsar.admin import routes
from bundlekeel.pulsar.admin.failures import RawAnswer, decoded_answer
from bundlekeel.pulsar.admin.hosts import joined
from bundlekeel.pulsar.admin.routes import AdminRoute, bundle_path, lookup_path, scalable_stats_path, with_query
from bundlekeel.pulsar.admin.transport import FOLLOWED, AdminCall, AdminHttp, AdminOptions
from bundlekeel.pulsar.formats.broker_metrics import (
    LOOKUP_FAILURES,
    PageLines,
    decode_counters,
    decode_lookup_failures,
    decode_signs,
)
from bundlekeel.pulsar.formats.external_input import load_object
from bundlekeel.pulsar.formats.jvm_beans import decode_cpu_load, decode_cpu_seconds
from bundlekeel.pulsar.formats.records import decode_settings
from bundlekeel.pulsar.formats.scalable import decode_segment_owners
from bundlekeel.pulsar.formats.topics import decode_bundle_stats, decode_topic_stats
from bundlekeel.settings.tls import ClientTls as AdminTls
from bundlekeel.settings.token_source import TokenSource


class HttpBrokerAdmin:
    """Implements `ports.BrokerAdmin` and `ports.commands.BrokerCommands`. `http` sends the requests."""

    def __init__(
        self,
        *,
        telemetry: Telemetry,
        clock: Clock,
        token: TokenSource | None = None,
        tls: AdminTls | None = None,
        options: AdminOptions | None = None,
    ) -> None:
        options = options or AdminOptions()
        self._clock = clock
        self.http = AdminHttp(
            telemetry=telemetry,
            clock=clock,
            token=token,
            tls=tls,
            options=options,
        )

    def set_endpoints(self, endpoints: Mapping[str, BrokerEndpoint]) -> None:
        """Replace the brokers that may be called. No other host is called, not even after a redirect."""
        self.http.know(endpoints)

    async def runtime_configuration(self, broker_id: str) -> dict[str, str]:
        """Return the effective settings of that broker."""
        reply = await self.http.read(AdminCall(route=routes.RUNTIME, target=routes.RUNTIME.path()), at=broker_id)
        return await decoded_answer("runtime configuration", decode_settings, reply.answer)

    async def dynamic_configuration(self) -> dict[str, str]:
        """Return the dynamic broker settings stored for the cluster, by name."""
        reply = await self.http.anywhere(AdminCall(route=routes.DYNAMIC, target=routes.DYNAMIC.path()))
        return await decoded_answer("dynamic configuration", decode_settings, reply.answer)

    async def set_dynamic(self, key: str, value: str, *, permit: Permit, look_again: LookAgain = no_look) -> None:
        """Set a dynamic broker setting. Pulsar rejects unknown keys (412), but does not check every value."""
        route = routes.SET_DYNAMIC
        target = route.path(key=key, value=value)
        await self.http.anywhere(AdminCall(route=route, target=target, permit=permit, look_again=look_again))

    async def delete_dynamic(self, key: str, *, permit: Permit, look_again: LookAgain = no_look) -> None:
        """Remove a dynamic broker setting. An absent setting is not an error."""
        route = routes.DELETE_DYNAMIC
        target = route.path(key=key)
        await self.http.anywhere(AdminCall(route=route, target=target, permit=permit, look_again=look_again))

    async def topics_of_bundle(self, bundle: str, owner: str) -> list[str]:
        """Return the sorted full names of the topics of a bundle, from its owner.

        This uses `topicHashPositions` without `topics=`, which lists all topics and partitions and changes nothing: for
        an unowned bundle it returns 412 and assigns nothing (observed on 4.2.4). Other routes are incomplete:
        `broker-stats/topics` omits topics that are not loaded, `persistent/{t}/{ns}?bundle=` omits system topics.
        """
        return sorted(await self._positions(bundle, owner))

    async def topic_loads(self, bundle: str, owner: str) -> list[TopicLoad]:
        """Return the topics of a bundle with hash, traffic and sessions, from its owner, sorted by name.

        The broker computes the hashes, so they are right for any `topicBundleAssignmentStrategy`. The traffic is from
        its last statistics run.
        """
        positions = await self._positions(bundle, owner)
        reply = await self.http.read(AdminCall(route=routes.TOPIC_STATS, target=routes.TOPIC_STATS.path()), at=owner)
        figures = await decoded_answer(f"topic statistics of {owner}", decode_topic_stats, reply.answer, bundle=bundle)
        loads = []
        for topic, position in sorted(positions.items()):
            if not isinstance(position, int):
                raise AdminFault("topic hash positions: a position is not a number", status=200)
            traffic, sessions = figures.get(topic, ((0.0, 0.0, 0.0, 0.0), 0))
            loads.append(TopicLoad(topic=topic, hash=position, traffic=traffic, sessions=sessions))
        return loads

    async def bundle_loads(self, broker_id: str) -> BundleLoads:
        """Return the loads of all bundles of that broker, system bundles included.

        Raises AdminFault if the response has no statistics, or more bytes than `AdminRoute.max_bytes`.
        """
        reply = await self.http.read(
            AdminCall(route=routes.TOPIC_STATS, target=routes.TOPIC_STATS.path()), at=broker_id
        )
        return await decoded_answer(f"topic statistics of {broker_id}", decode_bundle_stats, reply.answer)

    async def cpu_load(self, broker_id: str) -> float:
        """Return the used share of the broker's CPU, 0 to 1. Raises AdminFault if the response lacks it."""
        return await self._bean(broker_id, decode_cpu_load)

    async def cpu_seconds(self, broker_id: str) -> float:
        """Return the CPU seconds that a broker used since its start. Raises AdminFault if the response lacks them."""
        return await self._bean(broker_id, decode_cpu_seconds)

    async def _bean(self, broker_id: str, decode: Callable[[bytes], float]) -> float:
        # 100 KB on 4.2.4, 9 KB of gzip.
        call = AdminCall(route=routes.MBEANS, target=routes.MBEANS.path(), gzip=True)
        reply = await self.http.read(call, at=broker_id)
        return await decoded_answer(f"beans of {broker_id}", decode, reply.answer)

    async def client_signs(self, broker_id: str) -> ClientSigns:
        """Return latency and failures of the broker's clients.

        Raises AdminRefused for an extensible broker, without a request: that would change its load averages.
        """
        if "Extensible" in self.http.hosts.load_manager(broker_id):
            raise AdminRefused(
                f"{broker_id}: reading its metrics would change its load averages", reason="extensible load manager"
            )
        reply = await self.http.read(AdminCall(route=routes.METRICS, target=routes.METRICS.path()), at=broker_id)
        signs = await decoded_answer(f"metrics of {broker_id}", decode_signs, reply.answer)
        return replace(signs, lookups_failed=await self._lookups_failed(broker_id))

    async def _lookups_failed(self, broker_id: str) -> int | None:
        """Return the broker's number of failed lookups; None: its Prometheus page is not accessible, or too long."""
        call = AdminCall(
            route=routes.PROMETHEUS, target=routes.PROMETHEUS.path(), keep=PageLines([LOOKUP_FAILURES], most=1)
        )
        try:
            reply = await self.http.read(call, at=broker_id)
        except AdminApiError:
            return None
        return await asyncio.to_thread(decode_lookup_failures, reply.answer.content)

    async def counters(self, broker: BrokerEndpoint) -> Sequence[CounterReading]:
        """Return counters of the broker's topics from its Prometheus page (`ports.TopicCounters`).

        With the extensible load manager this changes the broker's load averages, as each scrape by Prometheus does.
        A broker that is not registered any more gets no token.
        """
        started = self._clock.wall_ms()
        call = AdminCall(route=routes.PROMETHEUS, target=routes.PROMETHEUS.path(), keep=PageLines(), gzip=True)
        if broker.broker_id in self.http.hosts.brokers():
            answer = (await self.http.read(call, at=broker.broker_id)).answer
        else:
            answer = await self.http.read_unregistered(call, broker)
        ended = self._clock.wall_ms()
        what = f"counters of {broker.broker_id}"
        return [await decoded_answer(what, decode_counters, answer, from_ms=started, to_ms=ended)]

    async def owned_bundles(self, broker_id: str, cluster: str) -> list[str]:
        """Return all bundles of the broker, sorted, also those without topics, which load reports omit."""
        route = routes.OWNED
        reply = await self.http.read(
            AdminCall(route=route, target=route.path(cluster=cluster, broker=broker_id)), at=broker_id
        )
        return sorted(await decoded_answer("owned namespaces", load_object, reply.answer))

    async def _positions(self, bundle: str, owner: str) -> dict[str, Any]:
        route: AdminRoute = routes.HASH_POSITIONS
        reply = await self.http.read(AdminCall(route=route, target=bundle_path(route, bundle)), at=owner)
        body = await decoded_answer("topic hash positions", load_object, reply.answer)
        positions = body.get("topicHashPositions")
        if not isinstance(positions, dict):
            raise AdminFault("topic hash positions: the answer has no positions", status=200)
        return positions

    async def split(self, bundle: str, *, positions: Sequence[int] | None, at: str, permit: Permit) -> UnloadAnswer:
        """Split a bundle at these hashes, or in the middle. The new bundles stay at the broker.

        The broker returns 204 also if it splits nothing, for example with positions if the bundle has fewer than two
        topics.
        """
        algorithm = SplitAlgorithm.RANGE if positions is None else SplitAlgorithm.POSITIONS
        query = {"unload": "false", "splitAlgorithmName": algorithm.value}
        target = with_query(bundle_path(routes.SPLIT, bundle), query)
        content = json.dumps(list(positions or ())).encode()
        call = AdminCall(route=routes.SPLIT, target=target, content=content, permit=permit)
        reply = await self.http.follow(call, at=at)
        return UnloadAnswer(status=reply.answer.status, hops=reply.hops, seconds=reply.seconds)

    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
        """Unload a bundle, and follow 307 redirects from broker `at` (the leader broker if known).

        The leader broker stores the destination for the bundle's next lookup, and the last broker in the chain of
        redirects unloads. If the permit is refused between these two steps, the stored destination stays, because no
        request can remove it. It then applies to the next unload without a destination.
        """
        query = {} if destination is None else {"destinationBroker": destination}
        target = with_query(bundle_path(routes.UNLOAD, bundle), query)
        reply = await self.http.follow(AdminCall(route=routes.UNLOAD, target=target, permit=permit), at=at)
        return UnloadAnswer(status=reply.answer.status, hops=reply.hops, seconds=reply.seconds)

    async def claim(self, topic: str, *, broker_id: str, permit: Permit) -> str:
        """Send an authoritative lookup to `broker_id`, which acquires the bundle if no broker owns it.

        Returns the id of the owner that the response names. A redirect means that `broker_id` did not acquire the
        bundle: the redirect's target is returned and not called.
        """
        if topic.startswith("segment://"):
            return await self._segment_owner(topic, at=broker_id, permit=permit)
        target = with_query(lookup_path(topic), {"authoritative": "true"})
        answer = await self.http.once(AdminCall(route=routes.LOOKUP, target=target, permit=permit), at=broker_id)
        if answer.status in FOLLOWED:
            return self._redirected_to(answer)
        answering = self.http.hosts.answering_broker(await decoded_answer("lookup", load_object, answer))
        if answering is None:
            raise AdminFault("lookup: the answer names no broker", status=answer.status)
        return answering

    async def _segment_owner(self, topic: str, *, at: str, permit: Permit) -> str:
        """Let the controller of a scalable topic look up its segments. Returns the owner of the segment `topic`.

        The controller is any broker, so the brokers' leader assigns the bundle, to the destination of the last unload.
        """
        call = AdminCall(route=routes.SCALABLE_STATS, target=scalable_stats_path(topic), permit=permit)
        reply = await self.http.follow(call, at=at)
        owners = await decoded_answer("scalable topic", decode_segment_owners, reply.answer)
        if not owners.get(topic):
            raise AdminFault(f"scalable topic: the answer names no owner of {topic}", status=reply.answer.status)
        return owners[topic]

    async def close(self) -> None:
        """Close pooled connections."""
        await self.http.close()

    def _redirected_to(self, answer: RawAnswer) -> str:
        broker_id = self.http.hosts.broker_at(joined(answer.url, answer.location))
        if broker_id is None:
            raise UnknownHostRedirect("the lookup was redirected to a host that is not a known broker", url=answer.url)
        return broker_id
