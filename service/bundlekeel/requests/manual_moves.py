"""Transfers, unloads and splits that an operator requests: planned here as a dry run, executed by the leader.

A request for one move names bundle, source and target. Right before it acts, the leader plans again from its own view
and with the same guard, and executes exactly the requested move or nothing. A request to unload a namespace names
bundles and their sources only: it takes many cycles, and each bundle moves to the broker with most headroom then.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bundlekeel.leader.cycle.cycle import Cycle
from bundlekeel.leader.cycle.planner import counted, move_view, refusal_view
from bundlekeel.leader.execution.splits import ONE_BOUNDARY, SplitRefused, cut_of, positions_of
from bundlekeel.leader.gate.in_force import LeftAlone
from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.model.errors import AdminApiError, CodecError, ConfigError, Conflict, NotFound, StoreError
from bundlekeel.model.names import is_system_bundle, parse_bundle
from bundlekeel.model.numbers import number
from bundlekeel.model.plan import Move, Refusal, Split
from bundlekeel.model.response_fields import Json
from bundlekeel.model.text_format import numbered, unknown_broker
from bundlekeel.planning.manual_moves import (
    PASSING,
    RULE,
    ManualPlan,
    TargetCandidate,
    Unloads,
    manual_move,
    unload_all,
)
from bundlekeel.planning.owned import with_owned
from bundlekeel.planning.relocation import by_person
from bundlekeel.planning.situation import Situation
from bundlekeel.planning.splitting.algorithms import (
    BY_LOAD,
    SplitAlgorithm,
    SplitOptions,
    TopicFlow,
    flow_or_qps_equally_divide,
    range_equally_divide,
    topic_count_equally_divide,
)
from bundlekeel.planning.splitting.children import SplitChildren
from bundlekeel.planning.splitting.rules import largest_bundle
from bundlekeel.ports import Ownership, TopicLoad
from bundlekeel.pulsar.existing_names import bundles_of
from bundlekeel.requests.manual_move_responses import CandidateView, ChildView, ManualMoveView, NamespaceUnloadView
from bundlekeel.requests.where import WholeBundle, whole_bundles

UNREADABLE: Final = "the request cannot be read; perhaps another version of Bundlekeel wrote it"
# Broker settings of the split algorithm `flow_or_qps_equally_divide`, with Pulsar's defaults in msg/s, MiB/s and
# per cent.
FLOW_LIMITS: Final = {
    "loadBalancerNamespaceBundleMaxMsgRate": "30000",
    "loadBalancerNamespaceBundleMaxBandwidthMbytes": "100",
    "flowOrQpsDifferenceThresholdPercentage": "10",
}
POLICIES = (Code.POLICY_FORBIDS, Code.POLICY_WITHOUT_BROKERS, Code.POLICY_UNREADABLE, Code.HAS_POLICY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualMoves:
    """Plans single moves and splits.

    Methods raise NotFound or ConfigError if a name is wrong, and Conflict if the bundle cannot be moved or split. They
    raise SnapshotError before the first cycle, and StoreError if the store does not respond.
    """

    cycle: Cycle
    ownership: Ownership

    async def move(self, name: str, to: str = "", *, override_cool_down: bool = False) -> tuple[ManualMoveView, Json]:
        """Return the dry run of moving one bundle, and the request for the leader; empty if the move is refused.

        `name`: a bundle or topic. `to`: the target broker; "": the broker with most headroom.
        """
        whole = await self._whole(name)
        owner = await self._owner(whole.bundle)
        if to and to not in self._registered():
            raise NotFound(unknown_broker(to, self._registered()))
        plan = await self._planned(whole.bundle, owner, to, override_cool_down=override_cool_down)
        kind = "transfer" if to else "unload"
        candidates = [self._candidate(item) for item in plan.candidates]
        answer = _answer(kind, name, whole, owner, plan, candidates=candidates, override_cool_down=override_cool_down)
        if plan.move is None:
            return answer, {}
        target = plan.move.target
        body = {"kind": kind, "bundle": whole.bundle, "source": owner, "target": target}
        # A leader that can execute only plans reads `moves`, does not find such a plan, and refuses the request.
        return answer, body | {
            "override_cool_down": override_cool_down,
            "moves": [[whole.bundle, owner, target]],
            "hash": answer.hash,
        }

    async def split(self, name: str, options: SplitOptions = BY_LOAD) -> tuple[ManualMoveView, Json]:
        """Return the dry run of a split, and the request for the leader.

        `name`: a bundle, a topic, or `TENANT/NAMESPACE/LARGEST` for the bundle of a namespace with the highest load.
        """
        algorithm, at = options.algorithm, options.at
        _check_positions(algorithm, at)
        name, largest = await self._resolved(name)
        whole = await self._whole(name)
        _check_inside(whole.bundle, at)
        owner = await self._owner(whole.bundle)
        then = "then the children leave it, each to the broker with most room" if options.unload else "nothing moves"
        place = f"divided at its owner {owner}; {then}"
        answer = ManualMoveView(
            kind="split",
            name=name,
            bundle=whole.bundle,
            source=owner,
            hash=_hash("split", whole.bundle, owner, ""),
            refusals=[],
            sentence=f"{whole.bundle}{largest} is {place}",
            topics=list(whole.topics),
            algorithm=algorithm.value if algorithm is not None else None,
            unload=options.unload,
        )
        try:
            self._may_split(whole.bundle, owner, algorithm)
            cut = await self._cut(whole.bundle, owner, at, algorithm)
        except SplitRefused as error:
            code = Code(error.code)
            refused = replace(answer, refusals=[refusal_view(Refusal(code, whole.bundle, owner, str(error)))])
            return replace(refused, sentence=f"{whole.bundle}{largest} would be {place}"), {}
        children = [
            ChildView(bundle=child, topics_ratio=topics, msg_rate_ratio=share[0], throughput_ratio=share[2])
            for child, topics, share in zip(cut.children, cut.topics, cut.shares, strict=True)
        ]
        hash_ = _hash("split", owner, *cut.children, *(["unload"] if options.unload else []))
        answer = replace(answer, children=children, hash=hash_)
        body = {"kind": "split", "bundle": whole.bundle, "source": owner, "at": list(at), "unload": options.unload}
        body |= {"algorithm": answer.algorithm, "hash": hash_}
        return answer, body | {"moves": [[whole.bundle, owner, ""]]}

    async def unload_namespace(
        self, namespace: str, *, override_cool_down: bool = False
    ) -> tuple[NamespaceUnloadView, Json]:
        """Return the dry run of unloading every bundle of a namespace, and the request for the leader.

        The request is empty if no bundle would move.
        """
        bundles = [str(bundle) for bundle in await bundles_of(namespace, self.cycle.metadata)]
        owners, unowned = await self._owners(bundles)
        unloads = await self._unloads(owners, override_cool_down=override_cool_down)
        refused = (*unowned, *unloads.refused)
        leaving = dict.fromkeys([*(move.bundle for move in unloads.moves), *(item.bundle for item in unloads.waiting)])
        sources = {name: owners[name] for name in leaving}
        sentence = f"{len(sources)} of {numbered(len(bundles), 'bundle')} of {namespace} to unload"
        answer = NamespaceUnloadView(
            kind="unload",
            namespace=namespace,
            bundles=len(bundles),
            moves=[move_view(move) for move in unloads.moves],
            waiting=[refusal_view(item) for item in unloads.waiting],
            refusals=[refusal_view(item) for item in refused],
            refusal_counts=counted(refused),
            sentence=f"{sentence}; {len(unloads.admitted)} within the budgets of one cycle",
            override_cool_down=override_cool_down,
            hash=_hash("unload", namespace, *(f"{name}@{owner}" for name, owner in sorted(sources.items()))),
        )
        if not sources:
            return answer, {}
        body = {"kind": "unload", "sources": sources, "override_cool_down": override_cool_down, "hash": answer.hash}
        return answer, body | {"moves": [[name, owner, ""] for name, owner in sources.items()]}

    # --- on the leader, right before it acts ---

    async def unloads_of(self, sources: Mapping[str, str], *, override_cool_down: bool) -> Unloads:
        """Plan which bundles move in this cycle, which wait for a later one, and which are refused.

        `sources`: the broker that each bundle must leave.
        """
        owners, refused = await self._owners(sources)
        left = {name: owner for name, owner in owners.items() if owner != sources[name]}
        refused += [Refusal(Code.OWNER_CHANGED, name, sources[name], f"owned by {left[name]} now") for name in left]
        here = {name: owner for name, owner in owners.items() if name not in left}
        unloads = await self._unloads(here, override_cool_down=override_cool_down)
        waiting = [item for item in refused if item.code in PASSING]
        stays = [item for item in refused if item.code not in PASSING]
        return replace(unloads, waiting=(*waiting, *unloads.waiting), refused=(*stays, *unloads.refused))

    async def moves_of(self, body: Mapping[str, Any]) -> tuple[Move, ...]:
        """Plan the one move of a request again. Raises Conflict with the difference if it has changed."""
        bundle, source, target = (str(body.get(key, "")) for key in ("bundle", "source", "target"))
        if not bundle or not source or not target:
            raise Conflict(UNREADABLE, code="refused", difference=[UNREADABLE])
        owner = await self._owner(bundle)
        if owner != source:
            raise Conflict(
                "the inputs changed since it was asked for",
                code="changed",
                difference=[f"{bundle} is owned by {owner} now"],
            )
        plan = await self._planned(bundle, owner, target, override_cool_down=bool(body.get("override_cool_down")))
        if plan.move is None:
            assert plan.refusal is not None
            text = _text(plan.refusal)
            raise Conflict(f"not carried out: {text}", code=plan.refusal.code.value, difference=[text])
        return (plan.move,)

    async def split_of(self, body: Mapping[str, Any]) -> Split:
        """Plan the split of a request again, with boundaries from the current topics.

        A split by load gets its boundaries later, when it is executed. Raises Conflict if the split is not possible.
        """
        bundle, source, at = str(body.get("bundle", "")), str(body.get("source", "")), tuple(body.get("at", ()))
        named = body.get("algorithm")
        if not bundle or not source:
            raise Conflict(UNREADABLE, code="refused", difference=[UNREADABLE])
        if named not in (None, *SplitAlgorithm):
            text = f"{UNREADABLE} (no split algorithm {named!r}; there are {', '.join(SplitAlgorithm)})"
            raise Conflict(text, code="refused", difference=[text])
        algorithm = SplitAlgorithm(named) if named is not None else None
        try:
            self._may_split(bundle, source, algorithm)
            if algorithm is not None:
                at = positions_of(await self._cut(bundle, source, at, algorithm))
        except SplitRefused as error:
            text = _text(Refusal(Code(error.code), detail=error.error))
            raise Conflict(f"not carried out: {text}", code=error.code, difference=[text]) from error
        return _split(bundle, source, at, algorithm)

    # --- helpers ---

    async def _whole(self, name: str) -> WholeBundle:
        wholes = await whole_bundles(name, metadata=self.cycle.metadata)
        if len(wholes) != 1:
            bundles = ", ".join(item.bundle for item in wholes)
            raise ConfigError(
                f"{name} lies in {len(wholes)} bundles, and bundles move whole; name one: {bundles}",
                field="name",
                value=name,
                allowed="one bundle, or a topic without partitions",
            )
        return wholes[0]

    async def _owner(self, bundle: str) -> str:
        try:
            owner = await self.ownership.owner(bundle)
        except CodecError as error:
            raise StoreError(f"the owner of {bundle} cannot be read: {error}") from error
        if owner is None:
            # The ownership channel does not contain system bundles although they have an owner: so do not advise a
            # lookup.
            code = Code.SYSTEM_BUNDLE if is_system_bundle(bundle) else Code.UNOWNED
            raise Conflict(f"{bundle}: {EXPLANATIONS[code]}", code=code.value, difference=[code.value])
        if owner.disabled:
            code = Code.IN_TRANSIT
            raise Conflict(f"{bundle}: {EXPLANATIONS[code]}", code=code.value, difference=[code.value])
        return owner.broker_id

    async def _owners(self, bundles: Iterable[str]) -> tuple[dict[str, str], list[Refusal]]:
        """Return the owner of each bundle, and a refusal for each bundle without a usable owner."""
        owners, refused = dict[str, str](), list[Refusal]()
        for bundle in bundles:
            try:
                owners[bundle] = await self._owner(bundle)
            except Conflict as error:
                refused.append(Refusal(Code(error.difference[0]), bundle))
        return owners, refused

    def _registered(self) -> tuple[str, ...]:
        picture = self.cycle.picture
        return tuple(picture.endpoints) if picture is not None else ()

    async def _planned(self, bundle: str, owner: str, to: str, *, override_cool_down: bool) -> ManualPlan:
        request = await self._with_policies({bundle: owner})
        plan = await asyncio.to_thread(manual_move, request, bundle, owner, to, override_cool_down=override_cool_down)
        if plan.refusal is None:
            return plan
        return replace(plan, refusal=self._left_alone().explain(plan.refusal))

    async def _unloads(self, owners: Mapping[str, str], *, override_cool_down: bool) -> Unloads:
        request = await self._with_policies(owners)
        # In a thread: planning one bundle takes milliseconds if there are many brokers.
        unloads = await asyncio.to_thread(unload_all, request, owners, override_cool_down=override_cool_down)
        return replace(unloads, refused=tuple(map(self._left_alone().explain, unloads.refused)))

    def _candidate(self, item: TargetCandidate) -> CandidateView:
        code = item.code
        if code is Code.EXCLUDED:
            code, _ = self._left_alone().why("", item.broker)
        return CandidateView(
            broker=item.broker,
            score_before=item.score_before,
            score_after=item.score_after,
            code=code.value if code is not None else None,
            explanation=EXPLANATIONS[code] if code is not None else "",
        )

    def _left_alone(self) -> LeftAlone:
        return LeftAlone(self.cycle.shared_state.desired, self.cycle.clock.wall_ms())

    async def _with_policies(self, owners: Mapping[str, str]) -> Situation:
        """Return the inputs of a plan, with freshly read policies and with each of these bundles at its owner."""
        owned: dict[str, list[str]] = {}
        for bundle, owner in owners.items():
            owned.setdefault(owner, []).append(bundle)
        snapshot = with_owned(self.cycle.demand_snapshot(), owned)
        policies = await self.cycle.policies.read(snapshot.bundles.namespaces)
        return replace(self.cycle.plan_input(snapshot), policies=policies)

    def _may_split(self, bundle: str, owner: str, algorithm: SplitAlgorithm | None) -> None:
        """Raise SplitRefused if the guard blocks the bundle, or if its owner does not support the algorithm.

        Policies that bind a bundle to brokers do not block a split, because the children stay at the bundle's owner.
        """
        snapshot = with_owned(self.cycle.demand_snapshot(), {owner: [bundle]})
        movable, refusals = by_person(self.cycle.plan_input(snapshot))
        row = next(iter(snapshot.bundles.rows_named({bundle})), -1)
        if row >= 0 and not movable[row] and refusals.codes[row] not in POLICIES:
            refusal = self._left_alone().explain(Refusal(refusals.codes[row], bundle, owner))
            raise SplitRefused(refusal.code, refusal.detail)
        setting = (self.cycle.config.values(owner) or {}).get("supportedNamespaceBundleSplitAlgorithms")
        if setting is not None:
            # The broker must support the requested algorithm and the one that it receives: Bundlekeel computes the
            # boundaries itself and sends them as positions, except for a split by range.
            sent = SplitAlgorithm.RANGE if algorithm is SplitAlgorithm.RANGE else SplitAlgorithm.POSITIONS
            supported = [item.strip() for item in setting.strip("[]").split(",")]
            missing = [item for item in dict.fromkeys((algorithm or sent, sent)) if item not in supported]
            if missing:
                raise SplitRefused(Code.NOT_SUPPORTED, f"{owner} has {', '.join(supported)}; not {', '.join(missing)}")

    async def _resolved(self, name: str) -> tuple[str, str]:
        """Return the bundle for `TENANT/NAMESPACE/LARGEST`, and why it was chosen; other names stay unchanged."""
        namespace, _, last = name.rpartition("/")
        if "://" in name or last.upper() not in ("LARGEST", "HOT"):
            return name, ""
        if last not in ("LARGEST", "HOT"):
            try:
                await whole_bundles(name, metadata=self.cycle.metadata)
            except NotFound as error:
                raise NotFound(f"{error}; for the largest bundle write {namespace}/LARGEST") from None
            return name, ""
        if last == "HOT":
            raise ConfigError(
                f"{name}: bundles are chosen by load with LARGEST",
                field="name",
                value=name,
                allowed=f"{namespace}/LARGEST; for a topic of that name persistent://{name}",
            )
        await bundles_of(namespace, self.cycle.metadata)
        largest = largest_bundle(self.cycle.demand_snapshot().bundles, namespace)
        if largest is None:
            code = Code.NO_BUNDLES.value
            raise Conflict(f"no broker reports a bundle of {namespace}", code=code, difference=[code])
        return largest[0], f", the largest by load ({largest[1]}),"

    async def _cut(
        self, bundle: str, owner: str, at: tuple[int, ...], algorithm: SplitAlgorithm | None
    ) -> SplitChildren:
        """Return the bundles that a split creates. Raises SplitRefused if no boundary divides the bundle."""
        try:
            topics = await self.cycle.admin.topic_loads(bundle, owner)
        except AdminApiError as error:
            raise SplitRefused(Code.ADMIN_REFUSED, str(error)) from error
        if algorithm not in (None, SplitAlgorithm.POSITIONS):
            at = self._boundaries(bundle, owner, topics, algorithm)
        if len(at) > 1 and self.cycle.demand_snapshot().mode == "extensible":
            raise SplitRefused(Code.NOT_SUPPORTED, f"{len(at)} boundaries; {ONE_BOUNDARY}")
        return cut_of(_split(bundle, owner, at, algorithm), topics)

    def _boundaries(
        self, bundle: str, owner: str, topics: Sequence[TopicLoad], algorithm: SplitAlgorithm | None
    ) -> tuple[int, ...]:
        """Return the boundaries at which the broker would split, computed by its algorithm with its own limits.

        Raises SplitRefused if it would not split the bundle.
        """
        name = parse_bundle(bundle)
        if algorithm is SplitAlgorithm.RANGE:
            return range_equally_divide(name.lower, name.upper)
        if len(topics) < 2:
            raise SplitRefused(Code.SINGLE_TOPIC, f"{algorithm} parts topics")
        if algorithm is SplitAlgorithm.TOPIC_COUNT:
            return topic_count_equally_divide([topic.hash for topic in topics])
        values = self.cycle.config.values(owner) or {}
        try:
            rate, size, over = (number(values.get(key, stock), field=key) for key, stock in FLOW_LIMITS.items())
        except CodecError as error:
            raise SplitRefused(Code.NOT_SUPPORTED, f"a setting of {owner} is unusable: {error}") from error
        flows = [
            TopicFlow(hash=topic.hash, msg_rate=sum(topic.traffic[:2]), throughput=sum(topic.traffic[2:]))
            for topic in topics
        ]
        boundaries = flow_or_qps_equally_divide(
            flows, max_msg_rate=rate, max_bandwidth_mb=size, difference_percent=over
        )
        if not boundaries:
            carried = f"it has {sum(flow.msg_rate for flow in flows):,.0f} msg/s"
            limits = f"{owner} cuts above {rate:,.0f} msg/s or {size:,.0f} MiB/s, and {over:.0f} % more"
            raise SplitRefused(Code.NO_BOUNDARY, f"{algorithm}: {carried}, {limits}")
        return boundaries


def _answer(
    kind: str,
    name: str,
    whole: WholeBundle,
    owner: str,
    plan: ManualPlan,
    *,
    candidates: list[CandidateView],
    override_cool_down: bool,
) -> ManualMoveView:
    move = plan.move
    sentence = whole.sentence if plan.refusal is None else whole.sentence_with("would move")
    return ManualMoveView(
        kind=kind,
        name=name,
        bundle=whole.bundle,
        source=owner,
        target=move.target if move is not None else None,
        move=move_view(move) if move is not None else None,
        refusals=[refusal_view(plan.refusal)] if plan.refusal is not None else [],
        candidates=candidates,
        loads=list(plan.loads),
        sentence=f"{sentence}; refused: {_text(plan.refusal)}" if plan.refusal is not None else sentence,
        hash=_hash(kind, whole.bundle, owner, move.target if move is not None else ""),
        override_cool_down=override_cool_down,
    )


def _split(bundle: str, broker: str, at: Sequence[int], algorithm: SplitAlgorithm | None) -> Split:
    halves = algorithm is SplitAlgorithm.RANGE
    return Split(bundle=bundle, broker=broker, rule=RULE, value=0.0, limit=0.0, hits=0, at=tuple(at), halves=halves)


def _check_positions(algorithm: SplitAlgorithm | None, at: Sequence[int]) -> None:
    if algorithm is not None and bool(at) != (algorithm is SplitAlgorithm.POSITIONS):
        raise ConfigError(
            f"{algorithm} {'takes no positions' if at else 'needs positions'}",
            field="at",
            value=", ".join(map(_position, at)),
            allowed=f"positions, with {SplitAlgorithm.POSITIONS} or without an algorithm",
        )


def _check_inside(bundle: str, at: Sequence[int]) -> None:
    name = parse_bundle(bundle)
    outside = [_position(position) for position in at if not name.lower < position < name.upper]
    if outside:
        positions, allowed = ", ".join(outside), f"above 0x{name.lower:08x} and below 0x{name.upper:08x}"
        raise ConfigError(f"{bundle} has no boundary at {positions}", field="at", value=positions, allowed=allowed)


def _position(hash_: int) -> str:
    return f"0x{hash_:08x}"


def _text(refusal: Refusal) -> str:
    return f"{EXPLANATIONS[refusal.code]}{f' ({refusal.detail})' if refusal.detail else ''}"


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
