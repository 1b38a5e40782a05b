"""Third stage of creating a sidecar: parts that store and execute the requests of operators."""

from __future__ import annotations

from dataclasses import dataclass

from bundlekeel.requests.executions import Executions
from bundlekeel.requests.operator_requests import OperatorRequests
from bundlekeel.requests.plans import Plans
from bundlekeel.requests.review import Reviews
from bundlekeel.wiring.leading import Leading


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Parts for requests of operators: moves, drains, reviews and submitted plans."""

    leading: Leading
    reviews: Reviews
    executions: Executions
    operator_requests: OperatorRequests
    plans: Plans


def requests(leading: Leading) -> Requests:
    """Create the parts for requests of operators."""
    reading, out = leading.reading, leading.reading.outside
    required = reading.loaded.settings.reviewed
    reviews = Reviews(out.coordination, reading.shared_state, out.clock, required=required)
    operator_requests = OperatorRequests(
        shared_state=reading.shared_state,
        cycle=leading.cycle,
        drain_tracker=leading.drain_tracker,
        review_store=reviews,
        metadata=out.metadata,
        ownership=out.ownership,
        journal=reading.journal,
        clock=out.clock,
        gate=leading.gate,
    )
    return Requests(
        leading=leading,
        reviews=reviews,
        executions=Executions(operator_requests, leading.planner, leading.executor),
        operator_requests=operator_requests,
        plans=Plans(
            leadership=reading.leadership,
            planner=leading.planner,
            peers=reading.peers,
            operator_requests=operator_requests,
        ),
    )
