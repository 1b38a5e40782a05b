"""Seeded random states of an extensible cluster, as lines for both `bundlekeel decide` and the oracle.

Frequent cases: loads that are equal, zero, negative zero or NaN; times exactly at a limit and one ms away from it;
lists of top bundles that are missing, empty, single, unsorted or all of the same size. Occasionally a field is absent,
null, or a number as a string.
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

Line = dict[str, Any]
NOW = 1_760_000_000_000
NAMESPACES = ("shop/a", "shop/b", "bank/c", "pulsar/b1:8080", "pulsar/system")


def config(rng: Random) -> dict[str, Any]:
    """A random configuration in Pulsar's keys; short waits, so that most states come to act. Any key may stay at the
    class's own default."""
    drawn: dict[str, Any] = {
        "loadBalancerBrokerLoadTargetStd": rng.choice([0.25, 0.25, 0.1, 0.05, 0.0, 0.02, 1.2, rng.random() / 2]),
        "loadBalancerSheddingConditionHitCountThreshold": rng.choice([0, 0, 0, 0, 0, 0, 1, 2, 3]),
        "loadBalancerTransferEnabled": rng.random() < 0.75,
        "loadBalancerDebugModeEnabled": rng.random() < 0.5,
        "loadBalancerMaxNumberOfBrokerSheddingPerCycle": rng.choice([1, 2, 3, 3, 10, 60]),
        "loadBalanceSheddingDelayInSeconds": rng.choice([180, 180, 0, 7]),
        "loadBalancerBrokerLoadDataTTLInSeconds": rng.choice([1800, 60]),
        "loadBalancerBrokerOverloadedThresholdPercentage": rng.choice([85, 85, 50, 100]),
        "loadBalancerSheddingExcludedNamespaces": rng.choice([[], [], [], ["shop/b"]]),
    }
    return {key: value for key, value in drawn.items() if rng.random() < 0.85}


def case(rng: Random) -> tuple[dict[str, Any], list[Line]]:
    """A configuration and one to six turns: the same state again, one a little changed, or a new one."""
    keys = config(rng)
    state = _state(rng, keys)
    turns = [state]
    for _ in range(rng.choice([0, 1, 1, 2, 3, 5])):
        kind = rng.random()
        if kind < 0.4:
            state = {**state, "now": state["now"] + rng.choice([0, 1, 60_000])}
        elif kind < 0.7:
            state = _changed(rng, state, keys)
        else:
            state = _state(rng, keys)
        turns.append(state)
    return keys, turns


def _state(rng: Random, keys: dict[str, Any]) -> Line:
    count = rng.choice([1, 2, 2, 3, 4, 5, 8, 12, 20, 40, 60, rng.randint(1, 60)])
    names = [f"b{rng.randrange(10**6)}-{index}:8080" for index in range(count)]
    draw = rng.choice([_any_load, _any_load, _few_loads, _few_loads, _one_hot, _one_hot, _equal, _idle])
    brokers, top, number = {}, {}, [0]
    for name in names:
        ema = draw(rng)
        traffic = rng.choice([ema * 1e8, ema * 1e8, ema * 1e8, rng.random() * 1e8, 0.0]) if not math.isnan(ema) else 1e7
        share = rng.random()
        data = {
            "weightedMaxEMA": _json(ema),
            "msgThroughputEMA": _json(rng.choice([traffic, traffic, traffic * rng.random(), 0.0])),
            "msgThroughputIn": traffic * share,
            "msgThroughputOut": traffic * (1 - share),
            "updatedAt": _updated_at(rng, keys),
        }
        brokers[name] = _torn(rng, data) if rng.random() < 0.01 else data
        kind = rng.random()
        if kind > 0.06:
            top[name] = _bundles(rng, number, traffic)
    return {"now": NOW, "brokers": brokers, "top_bundles": top, **_past(rng, keys, brokers, top)}


def _past(rng: Random, keys: dict[str, Any], brokers: Line, top: Line) -> Line:
    """Add recent moves and brokers without load data."""
    delay = 1000 * keys.get("loadBalanceSheddingDelayInSeconds", 180)
    recent_brokers = {}
    if rng.random() < 0.25:
        for name in rng.sample(list(brokers), rng.randint(1, min(3, len(brokers)))):
            elapsed = delay + rng.choice([-1, 0, 0, 1, 5000, 5000])
            recent_brokers[name] = max(_updated(brokers[name]) - elapsed, 0)
    bundles = [item["bundleName"] for items in top.values() for item in items]
    recent = rng.sample(bundles, rng.randint(0, len(bundles) // 3)) if rng.random() < 0.4 else []
    missing = ["nowhere:8080"] if rng.random() < 0.05 else rng.sample(list(brokers), 1) if rng.random() < 0.05 else []
    return {"missing": missing, "recent": recent, "recent_brokers": recent_brokers}


def _changed(rng: Random, state: Line, keys: dict[str, Any]) -> Line:
    """Some brokers report other loads a minute later."""
    later = state["now"] + 60_000
    brokers = {}
    for name, data in state["brokers"].items():
        ema = data.get("weightedMaxEMA")
        if rng.random() < 0.3 and isinstance(ema, float):
            ema = _json(max(0.0, ema + rng.uniform(-0.2, 0.2)))
        age = rng.choice([0, 1, 60_000, state["now"] - _updated(data)])
        brokers[name] = {**data, **({} if ema is None else {"weightedMaxEMA": ema}), "updatedAt": later - age}
    changed = {**state, "now": later, "brokers": brokers}
    return {**changed, **_past(rng, keys, brokers, state["top_bundles"])}


def _bundles(rng: Random, number: list[int], traffic: float) -> list[Line]:
    count = rng.choice([0, 1, 2, 2, 3, 4, 6, 10, 10, rng.randint(0, 40)])
    kind = rng.random()
    if kind < 0.3:
        weights = [1.0] * count
    elif kind < 0.6:
        weights = [rng.paretovariate(1.1) for _ in range(count)]
    else:
        weights = [rng.random() for _ in range(count)]
    weights = [0.0 if rng.random() < 0.05 else weight for weight in weights]
    if rng.random() < 0.9:
        weights.sort()
    whole = sum(weights) / rng.choice([1.0, 1.0, 0.5, 1.5]) or 1.0
    items = []
    for weight in weights:
        size, share = traffic * weight / whole, rng.choice([0.0, 0.5, 0.5, rng.random()])
        stats = {"msgThroughputIn": size * share, "msgThroughputOut": size * (1 - share)}
        if rng.random() < 0.002:
            stats["msgThroughputIn"] = _json(rng.choice([math.nan, math.inf]))
        items.append({"bundleName": _name(rng, number), "stats": stats})
    return items


def _name(rng: Random, number: list[int]) -> str:
    number[0] += 1
    return f"{rng.choice(NAMESPACES)}/0x{number[0]:08x}_0x{number[0] + 1:08x}"


def _updated_at(rng: Random, keys: dict[str, Any]) -> int:
    limit = 1000 * keys.get("loadBalancerBrokerLoadDataTTLInSeconds", 1800)
    if rng.random() < 0.9:
        return NOW - rng.randint(0, limit // 2)
    return NOW - limit - rng.choice([-1, 0, 1, 2, 10**7])


def _updated(data: Line) -> int:
    value = data.get("updatedAt")
    return value if isinstance(value, int) else 0


def _torn(rng: Random, data: Line) -> Line:
    """Return the data with one field absent, null or a string."""
    field = rng.choice(list(data))
    kind = rng.choice(["absent", "null", "text"])
    if kind == "absent":
        return {key: value for key, value in data.items() if key != field}
    return {**data, field: None if kind == "null" else str(data[field])}


def _any_load(rng: Random) -> float:
    unusual = rng.random()
    if unusual < 0.01:
        return math.nan
    return rng.choice([0.0, -0.0, 1.0]) if unusual < 0.08 else rng.random()


def _few_loads(rng: Random) -> float:
    return rng.choice([0.0, 0.1, 0.1, 0.5, 0.5, 0.9])


def _one_hot(rng: Random) -> float:
    return 0.95 if rng.random() < 0.15 else 0.02 + rng.random() / 10


def _equal(_: Random) -> float:
    return 0.1


def _idle(_: Random) -> float:
    return 0.0


def _json(value: float) -> float | str:
    """Return the value as Jackson writes it: a value that JSON cannot represent becomes a string."""
    if math.isnan(value):
        return "NaN"
    return value if math.isfinite(value) else "Infinity"
