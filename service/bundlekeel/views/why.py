"""Explains why a bundle is at its broker, or why a broker has its load, and what would change it.

The explanations follow from the last plan and from operators' requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bundlekeel.leader.gate.in_force import LeftAlone, asked_end, ends_of, lasts, pause_text
from bundlekeel.leader.state.documents import Desired
from bundlekeel.model.codes import END_OF_REQUEST, EXPLANATIONS, Code
from bundlekeel.model.errors import NotFound
from bundlekeel.model.names import as_pulsar_writes, bundle_for_hash, namespace_of
from bundlekeel.model.plan import Move, Plan, Refusal, Split, Verdict
from bundlekeel.model.response_fields import Json
from bundlekeel.model.snapshot import Snapshot
from bundlekeel.model.text_format import clock_text, numbered, unknown_broker
from bundlekeel.planning.guard.budgets import CYCLE_BUDGETS
from bundlekeel.planning.guard.scope import PAUSE_SCOPES, matching_bundles
from bundlekeel.planning.ledger import timeout_ms
from bundlekeel.planning.relocation import RULES
from bundlekeel.ports import Metadata, Ownership
from bundlekeel.pulsar.existing_names import boundaries_of, bundle_named, exists, topic_named
from bundlekeel.views.picture import CodeView, CycleView, WhyView
from bundlekeel.views.published import ClusterState

# What an operator can do about a code.
_ACTIONS: dict[Code, str] = {
    **END_OF_REQUEST,
    Code.COOL_DOWN: "wait until its cool-down is over, or move it by hand: `bundlekeel transfer`",
    Code.IDLE: "nothing to do: moving an idle bundle helps no broker",
    Code.SYSTEM_BUNDLE: "nothing to do: system bundles stay",
    Code.EXCLUDED: "end the exclusion: `bundlekeel include`, or the settings (`excluded_...`, `included_namespaces`)",
    Code.SEGMENT_ABOVE_LIMIT: "wait until Pulsar has split the segment, or five minutes",
    Code.SEGMENTS_CHANGED: "wait a minute: Pulsar moved load between bundles",
    Code.SERVED_TWICE: "restart the broker that does not own it: runbook BundlekeelServedTwice",
    Code.NOT_TAKEN_OVER: "take its namespace over too: `bundlekeel takeover --namespace {namespace}`",
    Code.HAS_POLICY: "set `bundles_with_policies` to true if such bundles may move",
    Code.POLICY_FORBIDS: "let its isolation policy or anti-affinity group allow more brokers",
    Code.POLICY_WITHOUT_BROKERS: "correct the isolation policy that `bundlekeel doctor` names (check `policies`): its "
    "patterns must match host names, without ports",
    Code.POLICY_UNREADABLE: "repair the policy that `bundlekeel doctor` names (check `policies`)",
    Code.TOO_BIG: "split it: `bundlekeel split`; it carries more than the difference between two brokers",
    Code.NO_GAIN: "add a broker, or wait for a lower load on the others",
    Code.BELOW_MINIMUM: "lower the minimum (parameters that begin with `min_unload`) if so little is worth a move",
    Code.BASE_LOAD: "find what uses the broker's CPU: function workers, proxies, garbage collection, other processes",
    Code.BUDGET_PER_HOUR: "wait, or raise `max_moves_per_hour`",
    Code.NO_RETURN: "wait, or let another broker take it",
    Code.QUARANTINED: "wait, or let another broker take it",
    Code.SOLE_BUNDLE: "split it: `bundlekeel split`",
    Code.TARGET_OVERLOADED: "add a broker, or take load off those there are",
    Code.NO_LEGAL_TARGET: "add a broker, or take load off those there are",
    Code.WRONG_LIMIT: "set `capacity` of the broker that `bundlekeel doctor` names (check `limits`)",
    **dict.fromkeys((Code.OBSERVE_ONLY, Code.RECOMMEND_ONLY), "set mode `act`; first `bundlekeel doctor --for act`"),
    Code.BROKERS_SHED_THEMSELVES: "turn the brokers' own shedding off: `bundlekeel takeover`",
    Code.BROKER_SETTINGS_UNKNOWN: "let the brokers answer: `bundlekeel doctor`, the check `admin API`",
    Code.PUT_ASIDE: "turn the brokers' own shedding off again: `bundlekeel takeover --again`",
    Code.OUTSIDE_WINDOW: "wait for the window, or move bundles by hand: `bundlekeel transfer`",
    Code.SETTLING_AFTER_OUTAGE: "wait until the brokers have settled",
    Code.NOT_LEADER: "the leader executes it; `bundlekeel status` shows which sidecar leads",
}
# These obstacles to executing plans are shown only if the last plan has moves.
_SHOWING = (Code.OBSERVE_ONLY, Code.RECOMMEND_ONLY, Code.NOT_LEADER)
_EVERYTHING = "everything"
_WAIT = "nothing to do: every cycle plans it again"
# How obstacles without a known time end. All codes that are not listed here or below end when the load changes.
_ENDS: dict[Code, str] = {
    Code.IDLE: "until it carries traffic",
    Code.SYSTEM_BUNDLE: "permanently",
    Code.NOT_TAKEN_OVER: "until its namespace is taken over",
    Code.HAS_POLICY: "until the setting or the policy changes",
    Code.POLICY_FORBIDS: "until its policies or the brokers change",
    Code.POLICY_WITHOUT_BROKERS: "until the policy matches a broker",
    Code.POLICY_UNREADABLE: "until the policy can be read",
    Code.IN_TRANSIT: "until its move has ended",
    Code.FROZEN_INTENT: "until the leader has settled that move, about two minutes",
    Code.SERVED_TWICE: "until the counters of both brokers no longer show it",
    Code.CORDONED: "until an operator ends it",
    Code.OUTSIDE_WINDOW: "until a maintenance window opens",
    Code.SOLE_BUNDLE: "until its broker has another bundle",
}
# These obstacles end with the next cycle, independent of the load.
_NEXT_CYCLE = CYCLE_BUDGETS | {
    Code.BUDGET_OF_REPAIR,
    Code.ANTI_AFFINITY,
    Code.ADAPTIVE_RATE,
    Code.BUDGET_OF_TRAFFIC,
    Code.SPLITTING,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WhyInput:
    """The input of an explanation.

    `last`: the leader's last cycle, or this sidecar's own if the leader's is unknown. `records`: move records, oldest
    first. `interval_seconds`: seconds between two cycles."""

    cluster: ClusterState
    last: CycleView | None
    metadata: Metadata
    ownership: Ownership
    records: list[Json]
    now_ms: int
    interval_seconds: float = 30.0

    @property
    def left_alone(self) -> LeftAlone:
        """Explains why the plan excludes bundles and brokers."""
        return LeftAlone(self.cluster.desired, self.now_ms)


async def why(name: str, why_input: WhyInput) -> WhyView:
    """Explain a broker, bundle or topic. Raises NotFound if the name is unknown, or before the first cycle."""
    snapshot = why_input.cluster.snapshot
    if snapshot is None:
        raise NotFound(why_input.cluster.no_picture)
    if name in snapshot.brokers.ids or name in {item.broker_id for item in snapshot.excluded}:
        return await asyncio.to_thread(_broker, name, snapshot, why_input)
    name = as_pulsar_writes(name)
    try:
        bundle = name if name in snapshot.bundles.names else await _bundle_of(name, why_input.metadata)
    except NotFound as error:
        if "/" in name or name[:2].lower() == "0x":
            raise
        broker_ids = (*snapshot.brokers.ids, *(item.broker_id for item in snapshot.excluded))
        raise NotFound(f"{unknown_broker(name, broker_ids)}; {error}") from None
    answer = await _bundle(bundle, snapshot, why_input)
    if bundle == name:
        return replace(answer, kind="bundle", name=name)
    topic = await topic_named(name, why_input.metadata)
    before = ""
    if not await exists(topic, why_input.metadata):
        before = f"there is no topic {topic} yet; of its bundle: "
    elif topic.domain == "topic":
        before = (
            f"each segment of {topic} has its own bundle (`bundlekeel where {topic}`); of its controller's bundle: "
        )
    return replace(answer, kind="topic", name=name, sentence=f"{before}{answer.sentence}")


async def _bundle_of(name: str, metadata: Metadata) -> str:
    bundle = await bundle_named(name, metadata)
    if bundle is not None:
        return str(bundle)
    topic = await topic_named(name, metadata)
    return str(bundle_for_hash(topic.namespace, await boundaries_of(metadata, topic.namespace), topic.hash))


def _broker(name: str, snapshot: Snapshot, why_input: WhyInput) -> WhyView:
    plan = why_input.cluster.report.plan if why_input.cluster.report else None
    excluded = next((item for item in snapshot.excluded if item.broker_id == name), None)
    verdict = _verdict(plan, name)
    moves = [move for move in (plan.moves if plan else ()) if name in (move.source, move.target)]
    # The broker's own obstacles come first: a drained broker stays empty even if nothing blocks the whole cluster.
    blocks = _requests_of(name, why_input.cluster.desired) + _paused(snapshot, why_input, broker=name)
    blocks += _closed(why_input, moves)
    codes, change = list(blocks), _broker_change(plan, name)
    if excluded is not None:
        sentence = f"{name} is left out: its report cannot be used ({excluded.code} {excluded.detail})"
        change = "let it report its load again: `bundlekeel doctor` tests each broker"
    elif verdict is not None:
        sentence = f"{name}: {verdict.sentence}"
        codes.append(_code(verdict.code, verdict.sentence))
    else:
        sentence_of_group = plan.group_of(name).verdict.sentence if plan else "no plan yet"
        sentence = sentence_of_group if sentence_of_group.startswith(name) else f"{name}: {sentence_of_group}"
    alike: dict[Code, list[Refusal]] = {}
    left_alone, frees_ms = why_input.left_alone, why_input.cluster.obstacles.frees_ms
    for item in plan.refusals if plan else ():
        if item.broker == name:
            alike.setdefault(left_alone.explain(item).code, []).append(item)
    for code, items in alike.items():
        row = snapshot.bundles.names.index(items[0].bundle) if items[0].bundle in snapshot.bundles.names else -1
        end = _end(code, items[0].bundle, name, frees_ms.get(row) or items[0].frees_ms, snapshot, why_input)
        codes.append(_code(code, _joined(_example(items), end)))
    moved = [item for item in why_input.records if name in (item.get("source"), item.get("destination"))]
    return WhyView(
        kind="broker",
        name=name,
        broker=name,
        sentence=sentence,
        codes=codes,
        planned=[move.sentence for move in moves],
        history=moved[-20:],
        what_would_change_it=_unblocked(blocks) or change,
    )


def _requests_of(broker: str, desired: Desired) -> list[CodeView]:
    """Return the drain and the cordon of a broker as codes, with operator and reason."""
    requests = {"drained": desired.drains, "cordoned": desired.cordons}
    return [
        _code(Code.CORDONED, f"{word} until an operator ends it, by {by_broker[broker].by}: {by_broker[broker].reason}")
        for word, by_broker in requests.items()
        if broker in by_broker
    ]


def _unblocked(blocks: list[CodeView]) -> str:
    """Return what an operator can do to end the first of these obstacles; "": no obstacles."""
    if not blocks:
        return ""
    scope = blocks[0].detail.partition(",")[0]
    if blocks[0].code == Code.PAUSED:
        return "end the pause: `bundlekeel resume`" + (f" --scope {scope}" if scope != _EVERYTHING else "")
    return _ACTIONS.get(Code(blocks[0].code), "`bundlekeel doctor` shows the fix")


def _example(refusals: list[Refusal]) -> str:
    first = f"{refusals[0].bundle} {refusals[0].detail}".strip()
    return first if len(refusals) == 1 else f"{numbered(len(refusals), 'bundle')}, the first one {first}"


def _verdict(plan: Plan | None, broker: str) -> Verdict | None:
    return next((item for item in plan.brokers if item.broker == broker), None) if plan else None


def _broker_change(plan: Plan | None, broker: str) -> str:
    if plan is None:
        return "wait for the first plan"
    group, own = plan.group_of(broker), _verdict(plan, broker)
    code = group.verdict.code
    if code is Code.HIT_COUNT and own is not None and own.code is Code.BALANCED:
        code = own.code  # only other brokers of the group wait for fresh reports
    if code is Code.HIT_COUNT:
        return "wait for the remaining fresh reports: the difference has to last"
    if moves := sum(move.source in group.brokers for move in plan.moves):
        return f"nothing to do: the plan moves {numbered(moves, 'bundle')}"
    if code is Code.SOLE_BROKER:
        return "nothing to do: bundles can move as soon as there is another broker"
    if code is Code.BALANCED:
        if len(group.brokers) > 1 and {*group.brokers} - {broker} <= plan.closed:
            return "open another broker: all others are drained, cordoned or excluded; see `bundlekeel operations`"
        return "nothing to do: a larger difference to the other brokers would change it"
    return group.verdict.sentence


async def _bundle(bundle: str, snapshot: Snapshot, why_input: WhyInput) -> WhyView:
    broker, sentence, codes, change = (
        # In a thread, because it takes up to a second in a large cluster.
        await asyncio.to_thread(_reported, bundle, snapshot, why_input)
        if bundle in snapshot.bundles.names
        else await _unreported(bundle, why_input)
    )
    plan = why_input.cluster.report.plan if why_input.cluster.report else None
    both: tuple[Move | Split, ...] = (*plan.moves, *plan.splits) if plan else ()
    planned = [item for item in both if item.bundle == bundle]
    blocks = [*_paused(snapshot, why_input, bundle=bundle), *_closed(why_input, planned)]
    return WhyView(
        kind="bundle",
        name=bundle,
        broker=broker,
        bundle=bundle,
        sentence=sentence,
        codes=[*codes, *blocks],
        history=[item for item in why_input.records if item.get("bundle") == bundle][-20:],
        what_would_change_it=_unblocked(blocks) or change,
    )


async def _unreported(bundle: str, why_input: WhyInput) -> tuple[str | None, str, list[CodeView], str]:
    """Explain a bundle that no broker reports: (owner, sentence, codes, action).

    Reads the owner from the metadata store or the ownership channel; None: no broker owns the bundle.
    """
    owner = await why_input.ownership.owner(bundle)
    if owner is None:
        return None, f"no broker owns {bundle}", [], "wait for a client's lookup"
    sentence = f"{owner.broker_id} owns it and reports no load of it: it is idle, or moved there after the last report"
    return owner.broker_id, sentence, [_code(Code.IDLE, "")], _ACTIONS[Code.IDLE]


def _reported(bundle: str, snapshot: Snapshot, why_input: WhyInput) -> tuple[str | None, str, list[CodeView], str]:
    """Explain a bundle that a broker reports: (owner, sentence, codes, action)."""
    row = snapshot.bundles.names.index(bundle)
    broker = snapshot.brokers.ids[int(snapshot.bundles.owner[row])]
    plan = why_input.cluster.report.plan if why_input.cluster.report else None
    obstacles = why_input.cluster.obstacles
    # Show a pin before other obstacles, because it does not end automatically.
    pinned = lasts(ends_of(why_input.cluster.desired.pinned).get(bundle, -1), why_input.now_ms)
    move = next((item for item in plan.moves if item.bundle == bundle), None) if plan else None
    if move is not None and row not in obstacles.codes:
        change = "nothing to do" + (f": the runner-up is {move.runner_up}" if move.runner_up else "")
        return broker, f"it is to move: {move.sentence}", [], change
    split = next((item for item in plan.splits if item.bundle == bundle), None) if plan else None
    if split is not None:
        return broker, f"it is to be split: {split.sentence}", [], "wait for the split: its children may move then"
    explain = why_input.left_alone.explain
    refused = [explain(item) for item in plan.split_refusals if item.bundle == bundle] if plan else []
    # Pauses are listed separately, each with its end.
    whole = [_code(item.code, item.detail) for item in refused if item.code is not Code.PAUSED]
    refusal = next((item for item in plan.refusals if item.bundle == bundle), None) if plan and not pinned else None
    code = Code.PINNED if pinned else obstacles.codes.get(row) or (refusal.code if refusal is not None else None)
    if code is None:
        sentence, change = _unmoved(broker, plan)
        return broker, f"it stays at {broker}: {sentence}", whole, change
    if code is Code.EXCLUDED:
        code, _ = why_input.left_alone.why(bundle, broker)
    if code is Code.PAUSED:
        return broker, f"it stays at {broker}: {EXPLANATIONS[code]}", whole, _WAIT
    frees_ms = obstacles.frees_ms.get(row) or (refusal.frees_ms if refusal is not None else 0)
    end = _end(code, bundle, broker, frees_ms, snapshot, why_input)
    if refusal is None and row in obstacles.codes:
        refusal = obstacles.refusal(snapshot, row)
    detail = _joined(refusal.detail if refusal is not None else "", end)
    codes, change = [_code(code, detail)], _action(code, bundle)
    if code is Code.COOL_DOWN and (beside := why_input.cluster.obstacles_without(bundle).codes.get(row)):
        # Show the obstacle, too, that remains when the cool-down is over.
        codes.append(_code(beside, _end(beside, bundle, broker, 0, snapshot, why_input)))
        change = _action(beside, bundle)
    broker = next(
        (e.target for e in why_input.cluster.cycle_state.ledger.entries if e.bundle == bundle and e.landed_ms), broker
    )
    return broker, f"it stays at {broker}: {EXPLANATIONS[code]}", [*codes, *whole], change


def _action(code: Code, bundle: str) -> str:
    return _ACTIONS.get(code, _WAIT).format(namespace=namespace_of(bundle))


def _end(code: Code, bundle: str, broker: str, frees_ms: int, snapshot: Snapshot, why_input: WhyInput) -> str:
    """Return how or when the obstacle to moving a bundle (`code`) ends, as a phrase; "": unknown.

    `frees_ms`: Unix time at which the obstacle ends, from the plan; 0: unknown."""
    plan_input, desired = why_input.cluster.plan_input, why_input.cluster.desired
    assert plan_input is not None
    if code is Code.PINNED:
        return asked_end(desired.pinned[bundle]) if bundle in desired.pinned else "until the next cycle"
    if code in (Code.EXCLUDED, Code.PAUSED):
        return why_input.left_alone.why(bundle, broker)[1]
    if code is Code.QUARANTINED:
        pairs = plan_input.guard.quarantined.items()
        frees_ms = min((until for (source, _), until in pairs if source == broker), default=0)
    if code is Code.UNSETTLED:
        entries = plan_input.ledger.entries
        concerned = {name for item in entries if item.bundle == bundle for name in (item.source, item.target)} or {
            broker
        }
        landed = [item.landed_ms for item in entries if {item.source, item.target} & concerned]
        if not landed:
            return "until the CPU use of its broker is known, for about two minutes"
        latest = max(landed) + timeout_ms(plan_input.params)
        return f"until both brokers' reports show its last move, at the latest {clock_text(latest)}"
    if frees_ms:
        factor = plan_input.params.cool_down_limited_factor
        longer = code is Code.COOL_DOWN and bundle in plan_input.guard.limited and factor != 1
        why = (
            f"; {factor:g} times as long, as a quota group limits its rates (cool_down_limited_factor)"
            if longer
            else ""
        )
        return f"until {clock_text(frees_ms)}{why}"
    if code in _NEXT_CYCLE:
        report = why_input.cluster.report
        last = report.wall_ms if report is not None else why_input.now_ms
        seconds = max(0.0, (last - why_input.now_ms) / 1000 + why_input.interval_seconds)
        return f"next turn in {seconds:.0f} s"
    return _ENDS.get(code, "until the load changes")


def _joined(detail: str, end: str) -> str:
    return f"{detail}; {end}".removeprefix("; ")


def _unmoved(broker: str, plan: Plan | None) -> tuple[str, str]:
    load = next((item for item in plan.loads if item.broker == broker), None) if plan else None
    if plan is None or load is None:
        return "no plan yet" if plan is None else plan.verdict.sentence, "wait for a plan that includes its broker"
    before = f"{load.score_before:.1%}"
    if leaving := sum(move.source == broker for move in plan.moves):
        moves = numbered(leaving, "planned move", "take")
        return (
            f"{moves} {broker} from {before} to {load.score_after:.1%} already",
            "nothing to do: it would take more load on that broker than these moves relieve",
        )
    group = plan.group_of(broker)
    mean = plan.mean_of("score_before", group.brokers)
    comparison = f"that broker is at {before}, the mean at {mean:.1%}; {group.verdict.sentence}"
    if load.score_before <= mean:
        return comparison, "nothing to do: brokers below the mean are not relieved"
    return comparison, _broker_change(plan, broker)


def _paused(snapshot: Snapshot, why_input: WhyInput, *, bundle: str = "", broker: str = "") -> list[CodeView]:
    codes = []
    for scope, pause in sorted(why_input.cluster.desired.all_pauses().items()):
        kind, _, name = scope.partition(":")
        if not lasts(pause.until_ms, why_input.now_ms) or (scope and kind not in PAUSE_SCOPES):
            continue
        holds = not scope or scope == f"broker:{broker}"
        if not holds and bundle in snapshot.bundles.names:
            rows = matching_bundles(snapshot, f"{PAUSE_SCOPES[kind]}:{name}")
            holds = bool(rows[snapshot.bundles.names.index(bundle)])
        if holds:
            codes.append(_code(Code.PAUSED, pause_text(scope or _EVERYTHING, pause)))
    return codes


def _closed(why_input: WhyInput, planned: Sequence[Move | Split]) -> list[CodeView]:
    """Return what blocks the execution of the last plan in the whole cluster, for example a time window or the mode.

    `planned`: the planned actions to explain. Moves of a drain or a warm-up do not wait for a window."""
    code = why_input.last.obstacle if why_input.last else None
    # Pauses are listed separately, each with its end.
    if code not in EXPLANATIONS or code == Code.PAUSED or (code in _SHOWING and not planned):
        return []
    requested = [item for item in planned if isinstance(item, Move) and item.rule in RULES]
    if code == Code.OUTSIDE_WINDOW and planned and len(requested) == len(planned):
        return []
    own = why_input.cluster.report.obstacle if why_input.cluster.report else None
    return [_code(Code(code), own.detail if own and own.code == code else "")]


def _code(code: Code, detail: str) -> CodeView:
    return CodeView(code=code.value, explanation=EXPLANATIONS[code], detail=detail)
