"""Cordons: brokers to which no bundle moves; and the end of a broker's cordon, drain and warm-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from bundlekeel.leader.state.documents import Desired
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.errors import NotFound
from bundlekeel.model.response_fields import Broker
from bundlekeel.requests.verb import Verb, drop, put

BrokerRequest = Annotated[
    str, Doc("operator's request for a broker: drain, cordon or warm", grows=("cordon", "drain", "warm"))
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CordonedView(Answer):
    """A newly cordoned broker."""

    broker: Broker
    state: Annotated[str, Doc("new state of the broker", of=("cordoned",))]


@dataclass(frozen=True, slots=True, kw_only=True)
class UncordonedView(Answer):
    """A broker that may receive bundles again."""

    broker: Broker
    ended: Annotated[list[BrokerRequest], Doc("requests that were ended: cordon, drain, warm")]


class Cordon(Verb):
    """Requests about cordons."""

    async def cordon(self, broker: str, *, reason: str, by: str) -> CordonedView:
        """Stop moving bundles to a broker."""
        self._check_registered(broker)

        def cordoned(desired: Desired) -> Desired:
            if broker not in desired.cordons:
                self._check_others_open(desired, broker)
            return put(desired, "cordons", broker, self._operator_request(reason, by))

        await self._note(cordoned, f"cordon of {broker}", reason, by)
        return CordonedView(broker=broker, state="cordoned")

    async def uncordon(self, broker: str, *, reason: str, by: str) -> UncordonedView:
        """End the cordon, drain and warm-up of a broker, even if the broker is not registered."""
        ended = [kind for kind in ("cordons", "drains", "warms") if broker in getattr(self.shared_state.desired, kind)]
        if not ended:
            raise NotFound(f"{broker} is neither cordoned nor drained nor warmed")

        def without(desired: Desired) -> Desired:
            for kind in ("cordons", "drains", "warms"):
                desired = drop(desired, kind, broker)
            return desired

        await self._note(without, f"uncordon of {broker}", reason, by)
        return UncordonedView(broker=broker, ended=[kind[:-1] for kind in ended])
