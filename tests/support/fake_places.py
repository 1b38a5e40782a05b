"""Places and assignments as a sidecar answers them, for `FakeService` and the wiring of CLI tests."""

from __future__ import annotations

from bundlekeel.core.model.codes import EXPLANATIONS, Code
from bundlekeel.core.model.errors import ConfigError
from bundlekeel.daemon.answers.picture import AssignmentView, DroppedView, Place, StepView

BROKERS = ("broker-0.pulsar:8080", "broker-1.pulsar:8080", "broker-2.pulsar:8080")


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
