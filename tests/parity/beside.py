"""Runs scenarios through the oracle and through our compat forms, and says where they differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from bundlekeel.compat.shedders import CompatPicture, CompatResult, Placer, shed
from bundlekeel.model.parameters import Parameters, compat_defaults, from_pulsar
from bundlekeel.planning.memory import CompatMemory
from dev.oracle import Oracle
from tests.parity.states import Scenario, Turn
from tests.support.pulsar import decode_compat

BATCH = 100


@dataclass
class Outcome:
    """Result of a run: states compared, states in which Java acted, and a description of every difference."""

    states: int = 0
    acted: int = 0
    differences: list[str] = field(default_factory=list)
    seen: Counter[str] = field(default_factory=Counter)


def parameters(config: dict[str, Any], release: str = "4.2") -> Parameters:
    """Our parameters for a configuration in Pulsar's keys, unchecked: the classes take thresholds below 0 too."""
    values = {**compat_defaults(release), **from_pulsar(config, ranged=False), "compat": release}
    return Parameters(**values)  # type: ignore[arg-type]


def picture_of_turn(turn: Turn) -> CompatPicture:
    """The turn as our decoder reads it; it knows by itself in which order Java's maps give their keys."""
    brokers = {name: msgspec.json.encode(record) for name, record in turn.brokers.items()}
    bundles = {name: msgspec.json.encode(record) for name, record in turn.bundles.items()}
    return decode_compat(brokers, bundles, turn.recent)


def named(picture: CompatPicture, result: CompatResult) -> tuple[dict[str, list[str]], dict[str, str]]:
    """`unload` and `to` by names, as Java answers."""
    names, brokers = picture.bundles.names, picture.brokers
    unload: dict[str, list[str]] = {}
    for row, source in result.unload:
        unload.setdefault(brokers[source], []).append(names[row])
    return unload, {names[row]: brokers[target] for row, target in result.to.items()}


def bits(values: Mapping[str, Any]) -> dict[str, str]:
    """Doubles as they are to the last bit; Java writes NaN and the infinities as texts."""
    return {name: float(value).hex() for name, value in values.items()}


def compare_shedder(
    oracle: Oracle, strategy: str, scenarios: Iterable[Scenario], *, release: str = "", older_jar: str = ""
) -> Outcome:
    """Every turn of every scenario: the same bundles in the same order, the same destinations, the same memory.

    `release`: that of our form, by default the one of the oracle.
    """
    outcome, release = Outcome(), release or oracle.release.line
    for batch in _batches(scenarios):
        lines: list[dict[str, Any]] = []
        for one in batch:
            lines.append({"reset": {"strategy": strategy, "config": one.config, "older_jar": older_jar}})
            lines.extend(turn.line() for turn in one.turns)
        answers = iter(oracle.ask_all(lines))
        for one in batch:
            assert next(answers) == {}
            memory, params = CompatMemory(), parameters(one.config, release)
            for number, turn in enumerate(one.turns):
                memory = _compare_shedding(
                    outcome, strategy, one.seed * 100 + number, turn, next(answers), memory, params
                )
    return outcome


def _compare_shedding(
    outcome: Outcome,
    strategy: str,
    number: int,
    turn: Turn,
    answer: dict[str, Any],
    memory: CompatMemory,
    params: Parameters,
) -> CompatMemory:
    outcome.states += 1
    if "error" in answer:
        outcome.differences.append(f"{number}: Java failed: {answer['error']}")
        return memory
    picture = picture_of_turn(turn)
    result = shed(picture, params, memory, strategy, params.compat)
    unload, to = named(picture, result)
    outcome.acted += bool(answer["unload"])
    outcome.seen[result.verdict.code.value] += 1
    java, ours = answer["memory"], result.memory
    hits = [
        {name: value for name, value in java.get(f"brokerHitCountFor{side}", {}).items() if value}
        for side in ("Low", "High")
    ]
    checks = (
        ("brokers", answer["brokers"], list(picture.brokers)),
        ("unload", answer["unload"], unload),
        ("to", answer["to"], to),
        ("planned", answer.get("planned", {}), {name: list(pair) for name, pair in ours.planned.items()}),
        ("history", bits(java.get("brokerAvgResourceUsage", {})), bits(ours.usage)),
        # A counter of 0 is as good as none; the class makes some while it looks.
        ("low hits", hits[0], {k: float(v) for k, v in ours.low.items() if v}),
        ("high hits", hits[1], {k: float(v) for k, v in ours.high.items() if v}),
    )
    outcome.differences += [
        f"{number} {name}: Java {theirs}, ours {mine}" for name, theirs, mine in checks if theirs != mine
    ]
    return ours


def compare_placement(oracle: Oracle, placement: str, scenarios: Iterable[Scenario]) -> Outcome:
    """Compare the candidates of every selection of every turn. Java's choice must be one of ours, and the run continues
    with it.

    `LeastLongTermMessageRate` and `LeastResourceUsageWithWeight` draw with `ThreadLocalRandom` and `AvgShedder` with
    a CRC of a random number, so the one drawn cannot be compared. `AvgShedder` shows no set: where a bundle of equal
    data was sent before it must be that broker, else any candidate. That of 5.0 is asked so often that all brokers come
    from which it draws.
    """
    outcome, release = Outcome(), oracle.release.line
    reset: dict[str, Any] = {"placement": placement} | ({"strategy": "avg"} if placement == "avg" else {})
    for batch in _batches(scenarios):
        lines: list[dict[str, Any]] = []
        for one in batch:
            lines.append({"reset": reset | {"config": one.config}})
            lines.extend(turn.line() for turn in one.turns)
        answers = iter(oracle.ask_all(lines))
        for one in batch:
            assert next(answers) == {}
            memory, params = CompatMemory(), parameters(one.config, release)
            for number, turn in enumerate(one.turns):
                answer = next(answers)
                outcome.states += 1
                if "error" in answer:
                    outcome.differences.append(f"{one.seed}/{number}: Java failed: {answer['error']}")
                    continue
                picture = picture_of_turn(turn)
                if placement == "avg":
                    memory = shed(picture, params, memory, "avg", release).memory
                memory = _compare_selections(
                    outcome, placement, f"{one.seed}/{number}", turn, answer, picture, memory, params
                )
    return outcome


def _compare_selections(
    outcome: Outcome,
    placement: str,
    where: str,
    turn: Turn,
    answer: dict[str, Any],
    picture: CompatPicture,
    memory: CompatMemory,
    params: Parameters,
) -> CompatMemory:
    placer = Placer(picture, params, memory, placement)
    index = {broker: row for row, broker in enumerate(picture.brokers)}
    for selection, java in zip(turn.select, answer["selected"], strict=True):
        row = picture.bundles.index.get(selection["bundle"], -1)
        candidates = np.array([index[name] for name in selection["candidates"]], dtype=np.int64)
        allowed, drawn = placer.select(row, candidates)
        ours = {picture.brokers[one] for one in allowed.tolist()}
        outcome.seen["all" if len(ours) == len(candidates) else "some"] += 1
        if java["chosen"] is None:
            checks: list[tuple[str, Any, Any]] = [("chosen", -1, drawn)]
        else:
            outcome.acted += len(ours) < len(candidates)
            checks = [("drawn from", True, java["chosen"] in ours)]
            if "allowed" in java:
                checks.append(("set", sorted(java["allowed"]), sorted(ours)))
            placer.record(row, index[java["chosen"]])
        usage = java["memory"].get("brokerAvgResourceUsageWithWeight")
        if usage is not None:
            checks.append(("history", bits(usage), bits(placer.memory().placement_usage)))
        outcome.differences += [
            f"{where} {name}: Java {theirs}, ours {mine}" for name, theirs, mine in checks if theirs != mine
        ]
    return placer.memory()


def _batches(scenarios: Iterable[Scenario]) -> Iterable[list[Scenario]]:
    batch: list[Scenario] = []
    for one in scenarios:
        batch.append(one)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
