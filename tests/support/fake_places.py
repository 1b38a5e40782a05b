"""Places, assignments, moves and refusals as a sidecar answers them, for the fakes of the API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from bundlekeel.core.model.codes import EXPLANATIONS, Code
from bundlekeel.core.model.errors import ConfigError
from bundlekeel.daemon.answers.picture import AssignmentView, DroppedView, Place, StepView
from bundlekeel.daemon.answers.plans import MoveView, RefusalView

BROKERS = ("broker-0.pulsar:8080", "broker-1.pulsar:8080", "broker-2.pulsar:8080")


NOW_MS = 1_790_000_000_000
BUNDLE = "shop/orders/0x00000000_0x10000000"


def refusal(code: Code, bundle: str = BUNDLE, broker: str = BROKERS[0], detail: str = "") -> RefusalView:
    """Why this bundle stays."""
    return RefusalView(code=code.value, bundle=bundle, broker=broker, detail=detail, explanation=EXPLANATIONS[code])


def move(rule: str = "by hand", **changes: Any) -> MoveView:
    """One move, by default one that a person asked for."""
    made = MoveView(
        bundle=BUNDLE,
        source=BROKERS[0],
        target=BROKERS[2],
        rule=rule,
        threshold=0.0,
        source_before=0.82,
        source_after=0.52,
        target_before=0.07,
        target_after=0.37,
        runner_up="",
        traffic=[2400.0, 7200.0, 3.8e6, 11.4e6],
        pressure=[120.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        sentence=f"{BUNDLE}: {BROKERS[0]} 82.0% -> 52.0%, {BROKERS[2]} 7.0% -> 37.0% ({rule})",
    )
    return replace(made, **changes)


def assignment(name: str) -> AssignmentView:
    """What `assignments` answers: an isolation policy leaves two of three, the second one is chosen."""
    dropped = DroppedView(broker=BROKERS[0], code="NotInPolicy", explanation=EXPLANATIONS[Code.NOT_IN_POLICY])
    steps = [
        StepView(name="available", candidates=list(BROKERS), dropped=[], note=""),
        StepView(name="policies", candidates=list(BROKERS[1:]), dropped=[dropped], note="isolation policy gold"),
    ]
    return AssignmentView(
        topic=None if "/0x" in name else name,
        hash=None,
        bundle="shop/orders/0x30000000_0x40000000",
        owner=None,
        state="unowned",
        preallocated=None,
        chosen=BROKERS[1],
        placement="least_resource_usage",
        candidates=list(BROKERS[1:]),
        code=None,
        sentence=f"{BROKERS[1]}, by least_resource_usage among 2",
        steps=steps,
    )


def places(name: str, listener: str = "") -> list[Place]:
    """What `where` answers: an owned and an unowned partition. ConfigError for a listener other than `external`."""
    if listener not in ("", "external"):
        raise ConfigError("no such listener; it has external", field="listener", value=listener, allowed="external")
    return [
        Place(
            topic=f"persistent://shop/orders/{name}-partition-0",
            topic_exists=True,
            hash="0x1a2b3c4d",
            bundle="shop/orders/0x00000000_0x10000000",
            broker=BROKERS[0],
            state="owned",
            web_url="http://broker-0.pulsar:8080",
            service_url="pulsar://example.com:31000" if listener else "pulsar://broker-0.pulsar:6650",
            listener=listener or None,
            preallocated_to=None,
        ),
        Place(
            topic=f"persistent://shop/orders/{name}-partition-1",
            topic_exists=False,
            hash="0x3a2b3c4d",
            bundle="shop/orders/0x30000000_0x40000000",
            broker=None,
            state="unowned",
            web_url="",
            service_url="",
            listener=listener or None,
            preallocated_to=None,
        ),
    ]
