"""All requests of operators about brokers and bundles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from bundlekeel.leader.gate.in_force import lasts
from bundlekeel.leader.state.documents import LastingRequest, OperatorRequest
from bundlekeel.model.calls import reads
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.errors import SnapshotError
from bundlekeel.model.response_fields import CODE_OR_EMPTY, Json
from bundlekeel.pulsar.formats import external_input
from bundlekeel.requests.cordon import Cordon
from bundlekeel.requests.drain import Drain, DrainView
from bundlekeel.requests.exclude import Exclude, ExclusionView
from bundlekeel.requests.pause import Pause, ScopePauseView
from bundlekeel.requests.pin import Pin, PinView
from bundlekeel.requests.restart import Restart
from bundlekeel.requests.review import Review
from bundlekeel.requests.split import Split
from bundlekeel.requests.tasks import Tasks
from bundlekeel.requests.unload import Unload
from bundlekeel.requests.verb import RequestView
from bundlekeel.requests.warm import Warm


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationsView(Answer):
    """All active requests of operators."""

    drains: Annotated[list[DrainView], Doc("brokers that are drained and kept empty")]
    cordons: Annotated[list[RequestView], Doc("brokers that receive no bundles")]
    warms: Annotated[list[RequestView], Doc("brokers that receive bundles gradually")]
    pins: Annotated[list[PinView], Doc("pinned bundles")]
    exclusions: Annotated[list[ExclusionView], Doc("bundles and brokers that are excluded from moves")]
    pauses: Annotated[list[ScopePauseView], Doc("active pauses")]
    held: Annotated[
        str,
        Doc(
            "code of the obstacle to all moves, which an operator must remove; empty: none",
            grows=CODE_OR_EMPTY,
        ),
    ] = ""
    held_explanation: Annotated[str, Doc("meaning of the code; empty: no code")] = ""


class OperatorRequests(Drain, Restart, Warm, Cordon, Pin, Exclude, Pause, Unload, Split, Tasks, Review):
    """All kinds of operators' requests about brokers and bundles, and the list of stored requests."""

    @reads
    async def operations(self) -> OperationsView:
        """Return all requests about brokers and bundles, with the progress of drains."""
        if not self.shared_state.desired_known:
            raise SnapshotError("the operators' requests have not been read yet")
        desired, now, progress = self.shared_state.desired, self.clock.wall_ms(), self.drain_tracker.progress()
        # What blocks plans also blocks drains, except for a closed time window, which is not a lasting obstacle.
        obstacle = self._held()
        without_end = {"eta_seconds": None} if obstacle["held"] else {}
        return OperationsView(
            **obstacle,
            drains=[
                external_input.convert(
                    msgspec.to_builtins(operator_request) | {"broker": broker} | progress.get(broker, {}) | without_end,
                    DrainView,
                )
                for broker, operator_request in sorted(desired.drains.items())
            ],
            cordons=_rows(desired.cordons),
            warms=_rows(desired.warms),
            pins=[PinView(bundle=name, **item) for name, item in _lasting(desired.pinned, now)],
            exclusions=[ExclusionView(pattern=name, **item) for name, item in _lasting(desired.excluded, now)],
            pauses=[ScopePauseView(scope=name, **item) for name, item in _lasting(desired.all_pauses(), now)],
        )


def _rows(requests: Mapping[str, OperatorRequest]) -> list[RequestView]:
    return [
        RequestView(broker=broker, **msgspec.to_builtins(operator_request))
        for broker, operator_request in sorted(requests.items())
    ]


def _lasting(requests: Mapping[str, LastingRequest], now: int) -> list[tuple[str, Json]]:
    return [(name, msgspec.to_builtins(item)) for name, item in sorted(requests.items()) if lasts(item.until_ms, now)]
