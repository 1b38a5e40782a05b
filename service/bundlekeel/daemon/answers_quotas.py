"""What may be asked of quotas."""

from __future__ import annotations

from typing import Any, Protocol

from bundlekeel.core.quotas.groups import QuotaGroup

Json = dict[str, Any]


class QuotasService(Protocol):
    """Quota groups: what holds, how they fare, and changing them. `rates` stands for {publish_messages, publish_bytes,
    dispatch_messages, dispatch_bytes}, a second, each None for no limit. Raises NotFound, ConfigError, StoreError."""

    async def view(self) -> Json:
        """{enforcer: off|native|policies, mode, acting: bool, obstacle: Code|None, sentence, wall_ms, cycle_seconds,
        problems: [str], writes: {written, planned, failed, held}, left: {Code: count}, explanations: {Code: str} of
        obstacle and left, transport: {state: off|connecting|ok|stuck|down, detail, since_ms, fault} (whether the leader
        hears what brokers tell each other; off: they do not, or there are no groups), groups: [{name, origin:
        settings|api, by, reason, since_ms, members, namespaces, topics, held_back, held_back_seconds (topics times
        seconds), limits: rates, usage: rates, brokers: {broker id: rates} (usage of those that serve it; of very many
        groups the busiest ones), shares: rates, used_ratio: rates, skew_loss: rates, excess: rates, defects: [{code,
        detail, explanation}], planned: [str] (what is to be written of ResourceGroups), told: [{broker (its service URL
        if it is not known), registered: bool, told: rates, measured: rates|None, publish_age_seconds,
        dispatch_age_seconds}]}]}. What the leader has not seen yet is None. `told`: what each broker that serves the
        group, or did, said of it last; None where it said nothing yet."""

    async def group(self, name: str) -> Json:
        """One of the groups, with `rows`, its busiest topics: [{topic, brokers, partitions, usage: rates, share: rates,
        demand: rates, loss: rates, partition_rate: rates (what each may pass now), held_back: [kind], change: {side:
        {messages, bytes} or None}, codes}]"""

    async def why(self, name: str, *, here: bool = False) -> Json:
        """`name`: a group or a topic. {name, kind: group|topic, group, sentences: [str], codes: [{code,
        explanation}]}. The leader knows every topic, and others ask it; `here`: nobody else is asked."""

    async def put(self, group: QuotaGroup, *, reason: str, by: str) -> Json:
        """Set a group, new or over the one of the settings: {name, origin, members, limits: rates}. ConfigError when it
        cannot be kept: names, limits, unknown tenants, namespaces of another group."""

    async def remove(self, name: str, *, reason: str, by: str) -> Json:
        """Take a group out of force; topics get back what was there: {name, origin}."""

    async def reset(self, name: str, *, reason: str, by: str) -> Json:
        """Drop what was set or removed over a group of the settings, so that they hold again: {name, origin, members,
        limits: rates, None when the settings do not declare it any more}. ConfigError when it does not fit to the other
        groups any more."""
