"""Why is it there? One bundle, topic or broker: what the last plan said, and what would change it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from bundlekeel.core.guard.scope import matching_bundles
from bundlekeel.core.model.codes import EXPLANATIONS, Code
from bundlekeel.core.model.errors import NotFound
from bundlekeel.core.model.names import bundle_for_hash, parse_bundle, parse_topic
from bundlekeel.core.model.plan import Plan, Refusal
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.model.text_format import clock_text, numbered
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.daemon.answers.picture import CodeView, WhyView
from bundlekeel.daemon.cycle.cycle import Cycle
from bundlekeel.daemon.gate.in_force import PAUSE_SCOPES
from bundlekeel.daemon.listings import obstacles
from bundlekeel.daemon.operations.where import bundle_named
from bundlekeel.daemon.state.documents import Pause
from bundlekeel.ports import Metadata

_NO_PAUSES: Mapping[str, Pause] = {}
_CHANGES: dict[Code, str] = {
    Code.COOL_DOWN: "wait until its cool-down is over, or move it by hand",
    Code.IDLE: "traffic on it: an idle bundle helps nobody by moving",
    Code.SYSTEM_BUNDLE: "nothing: system bundles stay",
    Code.EXCLUDED: "settings (`excluded_...`, `included_namespaces`), exclusions of people or a paused scope that end",
    Code.PINNED: "remove the pin, or wait for its expiry",
    Code.POLICY_FORBIDS: "another isolation policy or anti-affinity group, or more brokers that its policy allows",
    Code.POLICY_UNREADABLE: "a policy record that can be read: see the log, and Pulsar's isolation policies",
    Code.ANTI_AFFINITY: "the next picture: namespaces of one group move one after the other",
    Code.IN_TRANSIT: "its move is under way",
    Code.FROZEN_INTENT: "an earlier leader's move of it is settled first, within about two minutes",
    Code.TOO_BIG: "split it: one bundle carries more than the difference between two brokers",
    Code.NO_GAIN: "a lower load on the other brokers",
    Code.BELOW_MINIMUM: "more traffic on it, or a lower minimum (parameters that begin with `min_unload`)",
    Code.BUDGET_PER_CYCLE: "the next cycle, or a higher `max_moves_per_cycle`",
    Code.BUDGET_PER_SOURCE: "the next cycle, or a higher `max_moves_per_source`",
    Code.BUDGET_PER_TARGET: "the next cycle, or a higher `max_moves_per_target`",
    Code.BUDGET_PER_NAMESPACE: "the next cycle, or a higher `max_moves_per_namespace`",
    Code.BUDGET_PER_TENANT: "the next cycle, or a higher `max_moves_per_tenant`",
    Code.BUDGET_PER_HOUR: "less than `max_moves_per_hour` within an hour, or a higher one",
    Code.BUDGET_OF_TRAFFIC: "the next cycle, or a higher `max_traffic_share_per_cycle`",
    Code.ADAPTIVE_RATE: "a few cycles in which the brokers' clients fare no worse",
    Code.NO_RETURN: "`no_return_seconds` since it left there, or another broker that may take it",
    Code.CORDONED: "`bundlekeel uncordon` of that broker",
    Code.QUARANTINED: "the end of the quarantine, or another broker that may take it",
    Code.ROLLOUT_HOLD: "`rollout_quiet_seconds` in which no broker comes, goes or restarts",
    Code.BLAST_RADIUS: "`blast_window_seconds` in which few brokers come, go or restart",
    Code.OUTSIDE_WINDOW: "a maintenance window that allows more",
    Code.SOLE_BUNDLE: "more bundles: split it",
    Code.BALANCED: "a larger difference between the brokers",
    Code.UNSETTLED: "reports of both brokers that show its last move",
    Code.SPLITTING: "its split: the children may move then",
    Code.TARGET_OVERLOADED: "more brokers, or less load on those there are",
    Code.NO_LEGAL_TARGET: "more brokers, or less load on those there are",
}


async def why(
    name: str, *, cycle: Cycle, metadata: Metadata, records: list[Json], pauses: Mapping[str, Pause] = _NO_PAUSES
) -> WhyView:
    """NotFound when the name is no broker, bundle or topic of this cluster, or before the first cycle. `pauses`: those
    in force, by scope."""
    snapshot = cycle.snapshot
    if snapshot is None:
        raise NotFound("there is no picture of the cluster yet; try again in a few seconds")
    if name in snapshot.brokers.ids or name in {item.broker_id for item in snapshot.excluded}:
        return _broker(name, snapshot, cycle, records)
    bundle = await _bundle_of(name, metadata)
    answer = _bundle(bundle, snapshot, cycle, records)
    blocks = [*answer.codes, *_paused(bundle, snapshot, pauses)]
    return replace(answer, kind="bundle" if bundle == name else "topic", name=name, codes=blocks)


async def _bundle_of(name: str, metadata: Metadata) -> str:
    with suppress(ValueError):
        return str(parse_bundle(name))
    await bundle_named(name, metadata)
    try:
        topic = parse_topic(name)
    except ValueError:
        raise NotFound(f"{name!r} is no broker, bundle or topic") from None
    bounds = await metadata.boundaries(topic.namespace)
    if not bounds:
        raise NotFound(f"namespace {topic.namespace} does not exist")
    return str(bundle_for_hash(topic.namespace, bounds, topic.hash))


def _broker(name: str, snapshot: Snapshot, cycle: Cycle, records: list[Json]) -> WhyView:
    plan = cycle.report.plan if cycle.report else None
    excluded = next((item for item in snapshot.excluded if item.broker_id == name), None)
    verdict = next((item for item in plan.brokers if item.broker == name), None) if plan else None
    codes = []
    if excluded is not None:
        sentence = f"{name} is left out: its report cannot be used ({excluded.code} {excluded.detail})"
    elif verdict is not None:
        sentence = f"{name}: {verdict.code.value}; {verdict.sentence}"
        codes = [_code(verdict.code, verdict.sentence)]
    else:
        sentence = f"{name}: {plan.verdict.sentence if plan else 'no plan yet'}"
    refusals = [item for item in plan.refusals if item.broker == name] if plan else []
    alike: dict[Code, list[Refusal]] = {}
    for item in refusals:
        alike.setdefault(item.code, []).append(item)
    codes += [_code(code, _example(items)) for code, items in alike.items()]
    moves = [move.sentence for move in plan.moves if name in (move.source, move.target)] if plan else []
    touched = [item for item in records if name in (item.get("source"), item.get("destination"))]
    return WhyView(
        kind="broker",
        name=name,
        broker=name,
        sentence=sentence,
        codes=codes,
        planned=moves,
        history=touched[-20:],
        what_would_change_it=_broker_change(plan),
    )


def _example(refusals: list[Refusal]) -> str:
    """The first of them, and how many there are."""
    first = f"{refusals[0].bundle} {refusals[0].detail}".strip()
    return first if len(refusals) == 1 else f"{numbered(len(refusals), 'bundle')}, the first one {first}"


def _broker_change(plan: Plan | None) -> str:
    if plan is None:
        return "a first plan"
    if plan.verdict.code is Code.HIT_COUNT:
        return "the difference lasting for the remaining fresh reports"
    if plan.verdict.code is Code.BALANCED:
        return "a larger difference to the other brokers"
    return plan.verdict.sentence


def _bundle(bundle: str, snapshot: Snapshot, cycle: Cycle, records: list[Json]) -> WhyView:
    history = [item for item in records if item.get("bundle") == bundle][-20:]
    broker, sentence, codes, change = _stands(bundle, snapshot, cycle)
    return WhyView(
        kind="bundle",
        name=bundle,
        broker=broker,
        bundle=bundle,
        sentence=sentence,
        codes=codes,
        history=history,
        what_would_change_it=change,
    )


def _stands(bundle: str, snapshot: Snapshot, cycle: Cycle) -> tuple[str | None, str, list[CodeView], str]:
    """(owner, sentence, codes, what would change it) of one bundle."""
    if bundle not in snapshot.bundles.names:
        return None, f"no broker reports {bundle}: it is unowned, or not loaded yet", [], "a client's lookup"
    row = snapshot.bundles.names.index(bundle)
    broker = snapshot.brokers.ids[int(snapshot.bundles.owner[row])]
    plan = cycle.report.plan if cycle.report else None
    move = next((item for item in plan.moves if item.bundle == bundle), None) if plan else None
    if move is not None:
        change = f"runner-up {move.runner_up}" if move.runner_up else "nothing stands in the way"
        return broker, f"it is to move: {move.sentence}", [], change
    split = next((item for item in plan.splits if item.bundle == bundle), None) if plan else None
    if split is not None:
        return broker, f"it is to be split: {split.sentence}", [], "the split: its children may move then"
    whole = [_code(item.code, item.detail) for item in plan.split_refusals if item.bundle == bundle] if plan else []
    refusal = next((item for item in plan.refusals if item.bundle == bundle), None) if plan else None
    found = obstacles(cycle, snapshot)
    code = found.codes.get(row) or (refusal.code if refusal is not None else None)
    if code is None:
        sentence, change = _unmoved(broker, plan)
        return broker, f"it stays at {broker}: {sentence}", whole, change
    detail = refusal.detail if refusal is not None else ""
    if ends := found.frees_ms.get(row):
        detail = f"{detail}; until {clock_text(ends)}".removeprefix("; ")
    change = _CHANGES.get(code, "see the explanation")
    return broker, f"it stays at {broker}: {EXPLANATIONS[code]}", [_code(code, detail), *whole], change


def _unmoved(broker: str, plan: Plan | None) -> tuple[str, str]:
    """Why a bundle stays that nothing prevents from moving, by where its broker stands, and what would change it."""
    load = next((item for item in plan.loads if item.broker == broker), None) if plan else None
    if plan is None or load is None:
        return "no plan yet" if plan is None else plan.verdict.sentence, "a plan that knows its broker"
    before = f"{load.score_before:.1%}"
    if leaving := sum(move.source == broker for move in plan.moves):
        moves = numbered(leaving, "planned move", "take")
        return (
            f"{moves} {broker} from {before} to {load.score_after:.1%} already",
            "more load on that broker than these",
        )
    mean = sum(item.score_before for item in plan.loads) / len(plan.loads)
    stands = f"that broker is at {before}, the mean at {mean:.1%}; {plan.verdict.sentence}"
    if load.score_before <= mean:
        return stands, "a higher load on its broker than on the others: brokers below the mean give nothing away"
    return stands, _broker_change(plan)


def _paused(bundle: str, snapshot: Snapshot, pauses: Mapping[str, Pause]) -> list[CodeView]:
    """The pauses that hold a bundle, each with its end."""
    found = []
    for scope, pause in sorted(pauses.items()):
        kind, _, name = scope.partition(":")
        pattern = f"{PAUSE_SCOPES[kind]}:{name}" if kind in PAUSE_SCOPES else ""
        rows = matching_bundles(snapshot, pattern) if pattern else None
        if scope and (rows is None or bundle not in snapshot.bundles.names):
            continue
        if rows is None or rows[snapshot.bundles.names.index(bundle)]:
            until = f"until {clock_text(pause.until_ms)}" if pause.until_ms else "until resumed"
            found.append(_code(Code.PAUSED, f"{scope or 'everything'}, {until}, by {pause.by}: {pause.reason}"))
    return found


def _code(code: Code, detail: str) -> CodeView:
    return CodeView(code=code.value, explanation=EXPLANATIONS[code], detail=detail)
