"""The brokers and bundles of the API's fakes: places, assignments, moves and refusals as a sidecar answers them."""

from __future__ import annotations

from typing import Any

from bundlekeel.leader.cycle.plan_responses import MoveView, RefusalView
from bundlekeel.leader.cycle.planner import move_view
from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.plan import Move
from bundlekeel.requests.where_responses import AssignmentView, DroppedView, Place, StepView

BROKERS = ("broker-0.pulsar:8080", "broker-1.pulsar:8080", "broker-2.pulsar:8080")
SCORES = dict(zip(BROKERS, (0.82, 0.41, 0.07), strict=True))
NAMESPACES = ("shop/orders", "shop/payments", "telemetry/devices-europe-west")
# Each bundle's broker: two of the second one, two of the third, all others of the first.
OWNERS = {
    f"{NAMESPACES[index % 3]}/0x{index * 0x10000000:08x}_0x{(index + 1) * 0x10000000:08x}": BROKERS[
        min(index // 2, 2) if index < 6 else 0
    ]
    for index in range(12)
}
BUNDLES = tuple(OWNERS)

NOW_MS = 1_790_000_000_000
BUNDLE = BUNDLES[0]


def until_ms(seconds: float | None) -> int:
    """Return the end of a request that lasts `seconds`; 0: an operator ends it."""
    return 0 if seconds is None else NOW_MS + int(1000 * seconds)


def refusal(code: Code, bundle: str = BUNDLE, broker: str = BROKERS[0], detail: str = "") -> RefusalView:
    """Return a refusal of this bundle."""
    return RefusalView(code=code.value, bundle=bundle, broker=broker, detail=detail, explanation=EXPLANATIONS[code])


def move(rule: str = "by hand", bundle: str = BUNDLE, target: str = BROKERS[2], **changes: Any) -> MoveView:
    """One move of three tenths of a broker, by default one that a person asked for."""
    source = OWNERS[bundle]
    result = Move(
        bundle=bundle,
        source=source,
        target=target,
        rule=rule,
        source_before=SCORES[source],
        source_after=round(max(0.0, SCORES[source] - 0.3), 2),
        target_before=SCORES[target],
        target_after=round(SCORES[target] + 0.3, 2),
        traffic=(2400.0, 7200.0, 3.8e6, 11.4e6),
        pressure=(120.0, 0.0, 0.0, 0.0, 0.0, 0.0),
        **{"threshold": 0.0, "runner_up": "", **changes},
    )
    return move_view(result)


def assignment(name: str) -> AssignmentView:
    """Return the response of `assignments`: an isolation policy leaves two of three brokers, the second one is
    selected.
    """
    dropped = DroppedView(broker=BROKERS[0], code="NotInPolicy", explanation=EXPLANATIONS[Code.NOT_IN_POLICY])
    steps = [
        StepView(name="available", candidates=list(BROKERS), dropped=[], note=""),
        StepView(name="policies", candidates=list(BROKERS[1:]), dropped=[dropped], note="isolation policy gold"),
    ]
    return AssignmentView(
        topic=None if name in OWNERS else name,
        hash=None if name in OWNERS else "0x3a2b3c4d",
        bundle=name if name in OWNERS else BUNDLES[3],
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
    """Return the response of `where`: an owned and an unowned partition. Raises ConfigError if the listener is not
    `external`.
    """
    if listener not in ("", "external"):
        raise ConfigError("no such listener; it has external", field="listener", value=listener, allowed="external")
    topic = name if "://" in name else f"persistent://shop/orders/{name}"
    return [
        Place(
            topic=f"{topic}-partition-0",
            topic_exists=True,
            hash="0x1a2b3c4d",
            bundle=BUNDLE,
            broker=OWNERS[BUNDLE],
            state="owned",
            web_url="http://broker-0.pulsar:8080",
            service_url="pulsar://example.com:31000" if listener else "pulsar://broker-0.pulsar:6650",
            listener=listener or None,
            preallocated_to=None,
        ),
        Place(
            topic=f"{topic}-partition-1",
            topic_exists=False,
            hash="0x3a2b3c4d",
            bundle=BUNDLES[3],
            broker=None,
            state="unowned",
            web_url="",
            service_url="",
            listener=listener or None,
            preallocated_to=None,
        ),
    ]
