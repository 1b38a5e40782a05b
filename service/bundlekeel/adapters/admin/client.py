"""`HttpBrokerAdmin`: the admin REST API of the brokers behind `ports.BrokerAdmin`.

What is asked of one broker goes to that broker; what any broker may answer (dynamic configuration) goes to the
first that answers.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bundlekeel.adapters.admin import routes
from bundlekeel.adapters.admin.failures import RawAnswer, decoded_answer
from bundlekeel.adapters.admin.hosts import joined
from bundlekeel.adapters.admin.quotas import HttpQuotaAdmin
from bundlekeel.adapters.admin.routes import AdminRoute, bundle_path, lookup_path, with_query
from bundlekeel.adapters.admin.transport import FOLLOWED, AdminCall, AdminHttp, AdminOptions
from bundlekeel.codec.broker_metrics import (
    LOOKUP_FAILURES,
    PageLines,
    decode_counters,
    decode_lookup_failures,
    decode_signs,
)
from bundlekeel.codec.external_input import load_object
from bundlekeel.codec.jvm_beans import decode_cpu_load, decode_cpu_seconds
from bundlekeel.codec.records import decode_settings
from bundlekeel.codec.topics import decode_bundle_stats, decode_topic_stats
from bundlekeel.core.guard.rate import ClientSigns
from bundlekeel.core.model.counters import CounterReading
from bundlekeel.core.model.errors import AdminApiError, AdminFault, AdminRefused, UnknownHostRedirect
from bundlekeel.core.model.extensible import BundleLoads
from bundlekeel.core.splitting.algorithms import SplitAlgorithm
from bundlekeel.ports import BrokerEndpoint, Clock, Telemetry, TopicLoad
from bundlekeel.ports.commands import LookAgain, Permit, UnloadAnswer, no_look
from bundlekeel.tls import ClientTls as AdminTls
from bundlekeel.token_source import TokenSource


class HttpBrokerAdmin:
    """Implements `ports.BrokerAdmin` and `ports.commands.BrokerCommands`."""

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
        self._http = AdminHttp(
            telemetry=telemetry,
            clock=clock,
            token=token,
            tls=tls,
            options=options,
        )
        self.quotas = HttpQuotaAdmin(self._http)

    def set_endpoints(self, endpoints: Mapping[str, BrokerEndpoint]) -> None:
        """The brokers known right now: the only hosts that are ever called or followed to."""
        self._http.know(endpoints)

    async def runtime_configuration(self, broker_id: str) -> dict[str, str]:
        """Effective settings of that broker (GET, harmless)."""
        reply = await self._http.read(AdminCall(route=routes.RUNTIME, target=routes.RUNTIME.path()), at=broker_id)
        return await decoded_answer("runtime configuration", decode_settings, reply.answer)

    async def dynamic_configuration(self) -> dict[str, str]:
        """Dynamic overrides stored for the cluster (GET, harmless)."""
        reply = await self._http.anywhere(AdminCall(route=routes.DYNAMIC, target=routes.DYNAMIC.path()))
        return await decoded_answer("dynamic configuration", decode_settings, reply.answer)

    async def set_dynamic(self, key: str, value: str, *, permit: Permit, look_again: LookAgain = no_look) -> None:
        """Store a dynamic override. Pulsar checks the key (412), not always the value."""
        route = routes.SET_DYNAMIC
        target = route.path(key=key, value=value)
        await self._http.anywhere(AdminCall(route=route, target=target, permit=permit, look_again=look_again))

    async def delete_dynamic(self, key: str, *, permit: Permit, look_again: LookAgain = no_look) -> None:
        """Remove a dynamic override; quiet when there was none."""
        route = routes.DELETE_DYNAMIC
        target = route.path(key=key)
        await self._http.anywhere(AdminCall(route=route, target=target, permit=permit, look_again=look_again))

    async def topics_of_bundle(self, bundle: str, owner: str) -> list[str]:
        """Full names of the topics of a bundle, asked at its owner (harmless), sorted.

        `topicHashPositions` without `topics=` lists them all, partitions included, and only reads: for a bundle that
        is unowned it says 412 and assigns nothing (both seen on 4.2.4). `broker-stats/topics` would carry the
        statistics of every topic of the broker and misses what is not loaded; `persistent/{t}/{ns}?bundle=` leaves
        system topics out, which are as good for a lookup.
        """
        return sorted(await self._positions(bundle, owner))

    async def topic_loads(self, bundle: str, owner: str) -> list[TopicLoad]:
        """Topics of a bundle with hash, traffic and sessions, asked at its owner (harmless), sorted by name.

        The hashes are the broker's own, whatever assigns its topics to bundles. `broker-stats/topics` holds every
        topic of the broker, as of its last statistics run; of other bundles nothing is decoded.
        """
        positions = await self._positions(bundle, owner)
        reply = await self._http.read(AdminCall(route=routes.TOPIC_STATS, target=routes.TOPIC_STATS.path()), at=owner)
        figures = await decoded_answer(f"topic statistics of {owner}", decode_topic_stats, reply.answer, bundle=bundle)
        loads = []
        for topic, position in sorted(positions.items()):
            if not isinstance(position, int):
                raise AdminFault("topic hash positions: a position is no number", status=200)
            traffic, sessions = figures.get(topic, ((0.0, 0.0, 0.0, 0.0), 0))
            loads.append(TopicLoad(topic=topic, hash=position, traffic=traffic, sessions=sessions))
        return loads

    async def bundle_loads(self, broker_id: str) -> BundleLoads:
        """All bundles that broker serves, with system bundles; AdminFault when it answers with no statistics, or
        with more than `AdminRoute.max_bytes`."""
        reply = await self._http.read(
            AdminCall(route=routes.TOPIC_STATS, target=routes.TOPIC_STATS.path()), at=broker_id
        )
        return await decoded_answer(f"topic statistics of {broker_id}", decode_bundle_stats, reply.answer)

    async def cpu_load(self, broker_id: str) -> float:
        """Used share of the broker's CPU, 0..1; AdminFault when the answer has none."""
        return await self._bean(broker_id, decode_cpu_load)

    async def cpu_seconds(self, broker_id: str) -> float:
        """Return the CPU seconds that a broker's process has used since its start. Raises AdminFault if unknown."""
        return await self._bean(broker_id, decode_cpu_seconds)

    async def _bean(self, broker_id: str, decode: Callable[[bytes], float]) -> float:
        # 100 KB on 4.2.4, 9 KB of gzip.
        call = AdminCall(route=routes.MBEANS, target=routes.MBEANS.path(), gzip=True)
        reply = await self._http.read(call, at=broker_id)
        return await decoded_answer(f"beans of {broker_id}", decode, reply.answer)

    async def client_signs(self, broker_id: str) -> ClientSigns:
        """How the broker's clients fare. An extensible one is not asked (AdminRefused): its averages would advance."""
        if "Extensible" in self._http.hosts.load_manager(broker_id):
            raise AdminRefused(f"{broker_id}: its metrics advance its averages", reason="extensible load manager")
        reply = await self._http.read(AdminCall(route=routes.METRICS, target=routes.METRICS.path()), at=broker_id)
        signs = await decoded_answer(f"metrics of {broker_id}", decode_signs, reply.answer)
        return replace(signs, lookups_failed=await self._lookups_failed(broker_id))

    async def _lookups_failed(self, broker_id: str) -> int | None:
        """None where the broker gives none: its Prometheus page may be closed to us, or far too long."""
        call = AdminCall(
            route=routes.PROMETHEUS, target=routes.PROMETHEUS.path(), keep=PageLines([LOOKUP_FAILURES], most=1)
        )
        try:
            reply = await self._http.read(call, at=broker_id)
        except AdminApiError:
            return None
        return await asyncio.to_thread(decode_lookup_failures, reply.answer.content)

    async def counters(self, broker: BrokerEndpoint) -> Sequence[CounterReading]:
        """Counters of the broker's topics, by what Prometheus scrapes (`ports.TopicCounters`). It advances the averages
        of an extensible broker, as each scrape does."""
        started = self._clock.wall_ms()
        call = AdminCall(route=routes.PROMETHEUS, target=routes.PROMETHEUS.path(), keep=PageLines(), gzip=True)
        reply = await self._http.read(call, at=broker.broker_id)
        ended = self._clock.wall_ms()
        what = f"counters of {broker.broker_id}"
        return [await decoded_answer(what, decode_counters, reply.answer, from_ms=started, to_ms=ended)]

    async def owned_bundles(self, broker_id: str, cluster: str) -> list[str]:
        """Every bundle the broker owns, sorted. Load reports and topic statistics name only those with topics."""
        route = routes.OWNED
        reply = await self._http.read(
            AdminCall(route=route, target=route.path(cluster=cluster, broker=broker_id)), at=broker_id
        )
        return sorted(await decoded_answer("owned namespaces", load_object, reply.answer))

    async def _positions(self, bundle: str, owner: str) -> dict[str, Any]:
        route: AdminRoute = routes.HASH_POSITIONS
        reply = await self._http.read(AdminCall(route=route, target=bundle_path(route, bundle)), at=owner)
        body = await decoded_answer("topic hash positions", load_object, reply.answer)
        positions = body.get("topicHashPositions")
        if not isinstance(positions, dict):
            raise AdminFault("topic hash positions: the answer has no positions", status=200)
        return positions

    async def split(self, bundle: str, *, positions: Sequence[int] | None, at: str, permit: Permit) -> UnloadAnswer:
        """Split at these positions, or in the middle, children staying where they are. A broker answers 204 also when
        it splits nothing: where it is given positions and the bundle holds fewer than two topics by then."""
        algorithm = SplitAlgorithm.RANGE if positions is None else SplitAlgorithm.POSITIONS
        query = {"unload": "false", "splitAlgorithmName": algorithm.value}
        target = with_query(bundle_path(routes.SPLIT, bundle), query)
        content = json.dumps(list(positions or ())).encode()
        call = AdminCall(route=routes.SPLIT, target=target, content=content, permit=permit)
        reply = await self._http.follow(call, at=at)
        return UnloadAnswer(status=reply.answer.status, hops=reply.hops, seconds=reply.seconds)

    async def unload(self, bundle: str, *, destination: str | None, at: str, permit: Permit) -> UnloadAnswer:
        """Unload, following 307s by hand from broker `at` (the leader broker if known).

        The chain is followed to its end: stopping after the leader would leave its affinity armed. Where the permit is
        refused before the last hop, which unloads, the affinity stays armed: brokers have no request that disarms it.
        It decides where the bundle goes after its next unload, unless that has a destination of its own.
        """
        query = {} if destination is None else {"destinationBroker": destination}
        target = with_query(bundle_path(routes.UNLOAD, bundle), query)
        reply = await self._http.follow(AdminCall(route=routes.UNLOAD, target=target, permit=permit), at=at)
        return UnloadAnswer(status=reply.answer.status, hops=reply.hops, seconds=reply.seconds)

    async def claim(self, topic: str, *, broker_id: str, permit: Permit) -> str:
        """Authoritative lookup at `broker_id`: that broker takes the bundle if no broker owns it; returns the broker
        that answers for it. A redirect means it did not take it: its target is reported, not followed."""
        target = with_query(lookup_path(topic), {"authoritative": "true"})
        answer = await self._http.once(AdminCall(route=routes.LOOKUP, target=target, permit=permit), at=broker_id)
        if answer.status in FOLLOWED:
            return self._redirected_to(answer)
        answering = self._http.hosts.answering_broker(await decoded_answer("lookup", load_object, answer))
        if answering is None:
            raise AdminFault("lookup: the answer names no broker", status=answer.status)
        return answering

    async def close(self) -> None:
        """Close pooled connections."""
        await self._http.close()

    def _redirected_to(self, answer: RawAnswer) -> str:
        broker_id = self._http.hosts.broker_at(joined(answer.url, answer.location))
        if broker_id is None:
            raise UnknownHostRedirect("lookup redirected to no known broker", url=answer.url)
        return broker_id
