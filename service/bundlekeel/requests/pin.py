"""Pins: bundles that stay at their broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.errors import ConfigError, NotFound
from bundlekeel.model.names import as_pulsar_writes
from bundlekeel.model.response_fields import Bundle, Requested
from bundlekeel.requests.verb import UntilMs, Verb, drop, put
from bundlekeel.requests.where import whole_bundles


@dataclass(frozen=True, slots=True, kw_only=True)
class PinView(Requested):
    """A pin: a bundle that stays at its broker."""

    bundle: Bundle
    until_ms: UntilMs


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedView(PinView):
    """Response to the creation of a pin (a bundle stays at its broker)."""

    broker: Annotated[str | None, Doc("broker that owns the bundle; null: none")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpinnedView(Answer):
    """Response to the end of a pin (a bundle stayed at its broker)."""

    bundle: Bundle


class Pin(Verb):
    """Requests to pin bundles to their brokers, or to end that."""

    async def pin(self, bundle: str, *, seconds: float | None, reason: str, by: str) -> PinnedView:
        """Keep a bundle, or the bundle of a topic, at its present broker."""
        name, pin = await self._bundle_of(bundle), self._lasting_request(seconds, reason, by)
        await self._note(lambda desired: put(desired, "pinned", name, pin), f"pin of {name}", reason, by)
        owner = await self.ownership.owner(name)
        broker = owner.broker_id if owner is not None else None
        return PinnedView(bundle=name, broker=broker, **msgspec.to_builtins(pin))

    async def unpin(self, bundle: str, *, reason: str, by: str) -> UnpinnedView:
        """End the pin of a bundle, or of the bundle of a topic, even if that bundle has been split since."""
        pinned = self.shared_state.desired.pinned
        name = as_pulsar_writes(bundle)
        name = name if name in pinned else await self._bundle_of(name)
        if name not in pinned:
            raise NotFound(f"{name} is not pinned")
        await self._note(lambda desired: drop(desired, "pinned", name), f"unpin of {name}", reason, by)
        return UnpinnedView(bundle=name)

    async def _bundle_of(self, name: str) -> str:
        wholes = await whole_bundles(name, metadata=self.metadata)
        if len(wholes) != 1:
            raise ConfigError(
                f"{name!r} covers {len(wholes)} bundles, but the command needs one", field="bundle", value=name
            )
        return wholes[0].bundle
