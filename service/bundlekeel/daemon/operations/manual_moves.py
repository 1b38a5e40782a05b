"""Transfers, unloads and splits that a person asks for: planned here, dry first; carried out by the leader.

The leader plans again from its own picture right before it acts, with the same guard, and makes exactly that move or
none: a request names bundle, source and target. The unload of a namespace names bundles and their sources: it takes
many cycles, and each bundle goes where there is most room by then.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from bundlekeel.core.model.codes import EXPLANATIONS, Code
from bundlekeel.core.model.errors import (
    AdminApiError,
    CodecError,
    ConfigError,
    Conflict,
    NotFound,
    StoreError,
)
from bundlekeel.core.model.names import is_system_bundle, parse_bundle
from bundlekeel.core.model.numbers import number
from bundlekeel.core.model.plan import Move, Refusal, Split
from bundlekeel.core.model.snapshot import Snapshot
from bundlekeel.core.model.text_format import numbered, unknown_broker
from bundlekeel.core.operations.manual_moves import (
    PASSING,
    RULE,
    ManualPlan,
    TargetCandidate,
    Unloads,
    manual_move,
    unload_all,
)
from bundlekeel.core.operations.owned import with_owned
from bundlekeel.core.operations.relocation import Request, by_person
from bundlekeel.core.splitting.algorithms import (
    BY_LOAD,
    SplitAlgorithm,
    SplitOptions,
    TopicFlow,
    flow_or_qps_equally_divide,
    range_equally_divide,
    topic_count_equally_divide,
)
from bundlekeel.core.splitting.children import SplitChildren
from bundlekeel.core.splitting.rules import largest_bundle
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.daemon.answers.plans import CandidateView, ChildView, ManualMoveView, NamespaceUnloadView
from bundlekeel.daemon.cycle.cycle import Cycle
from bundlekeel.daemon.cycle.planner import counted, move_view, refusal_view
from bundlekeel.daemon.execution.splits import ONE_BOUNDARY, SplitRefused, SplitRequest, cut_of, positions_of
from bundlekeel.daemon.gate.in_force import LeftAlone
from bundlekeel.daemon.operations.where import WholeBundle, bundles_of, whole_bundles
from bundlekeel.ports import Ownership, TopicLoad

UNREADABLE: Final = "the request cannot be read; perhaps another version of Bundlekeel wrote it"
# What `flow_or_qps_equally_divide` goes by, with Pulsar's defaults: msg/s, MiB/s, per cent.
FLOW_LIMITS: Final = {
    "loadBalancerNamespaceBundleMaxMsgRate": "30000",
    "loadBalancerNamespaceBundleMaxBandwidthMbytes": "100",
    "flowOrQpsDifferenceThresholdPercentage": "10",
}
POLICIES = (Code.POLICY_FORBIDS, Code.POLICY_WITHOUT_BROKERS, Code.POLICY_UNREADABLE, Code.HAS_POLICY)


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualMoves:
    """Plans single moves and splits. Raises NotFound, Conflict, ConfigError, SnapshotError, StoreError."""

    cycle: Cycle
    ownership: Ownership

    async def move(self, name: str, to: str = "", *, override_cool_down: bool = False) -> tuple[ManualMoveView, Json]:
        """The dry run of a transfer (to a broker) or an unload (to wherever there is most room), and the request for
        the leader; no request (empty) when something refuses."""
        whole = await self._whole(name)
        owner = await self._owner(whole.bundle)
        if to and to not in self._registered():
            raise NotFound(unknown_broker(to, self._registered()))
        made = await self._planned(whole.bundle, owner, to, override_cool_down=override_cool_down)
        kind = "transfer" if to else "unload"
        candidates = [self._candidate(item) for item in made.candidates]
        answer = _answer(kind, name, whole, made, candidates=candidates, override_cool_down=override_cool_down)
        if made.move is None:
            return answer, {}
        target = made.move.target
        body = {"kind": kind, "bundle": whole.bundle, "source": owner, "target": target}
        # Releases that know only plans read `moves`, find no such plan and refuse the request.
        return answer, body | {
            "override_cool_down": override_cool_down,
            "moves": [[whole.bundle, owner, target]],
            "hash": answer.hash,
        }

    async def split(self, name: str, options: SplitOptions = BY_LOAD) -> tuple[ManualMoveView, Json]:
        """The dry run of a split, and the request for the leader. `TENANT/NAMESPACE/LARGEST` is a name, too."""
        algorithm, at = options.algorithm, options.at
        _check_taken(algorithm, at)
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
            made = await self._cut(whole.bundle, owner, at, algorithm)
        except SplitRefused as error:
            code = Code(error.code)
            refused = replace(answer, refusals=[refusal_view(Refusal(code, whole.bundle, owner, str(error)))])
            return replace(refused, sentence=f"{whole.bundle}{largest} would be {place}"), {}
        children = [
            ChildView(bundle=child, topics_ratio=topics, msg_rate_ratio=share[0], throughput_ratio=share[2])
            for child, topics, share in zip(made.children, made.topics, made.shares, strict=True)
        ]
        hash_ = _hash("split", owner, *made.children, *(["unload"] if options.unload else []))
        answer = replace(answer, children=children, hash=hash_)
        body = {"kind": "split", "bundle": whole.bundle, "source": owner, "at": list(at), "unload": options.unload}
        body |= {"algorithm": answer.algorithm, "hash": hash_}
        return answer, body | {"moves": [[whole.bundle, owner, ""]]}

    async def unload_namespace(
        self, namespace: str, *, override_cool_down: bool = False
    ) -> tuple[NamespaceUnloadView, Json]:
        """The dry run of the unload of every bundle of a namespace, and the request for the leader; no request (empty)
        when all of them stay."""
        bundles = [str(bundle) for bundle in await bundles_of(namespace, self.cycle.metadata)]
        owners, unowned = await self._owners(bundles)
        made = await self._unloads(owners, override_cool_down=override_cool_down)
        refused = (*unowned, *made.refused)
        leaving = dict.fromkeys([*(move.bundle for move in made.moves), *(item.bundle for item in made.waiting)])
        wanted = {name: owners[name] for name in leaving}
        sentence = f"{len(wanted)} of {numbered(len(bundles), 'bundle')} of {namespace} to unload"
        answer = NamespaceUnloadView(
            kind="unload",
            namespace=namespace,
            bundles=len(bundles),
            moves=[move_view(move) for move in made.moves],
            waiting=[refusal_view(item) for item in made.waiting],
            refusals=[refusal_view(item) for item in refused],
            refusal_counts=counted(refused),
            sentence=f"{sentence}; {len(made.admitted)} within the budgets of one cycle",
            override_cool_down=override_cool_down,
            hash=_hash("unload", namespace, *(f"{name}@{owner}" for name, owner in sorted(wanted.items()))),
        )
        if not wanted:
            return answer, {}
        body = {"kind": "unload", "sources": wanted, "override_cool_down": override_cool_down, "hash": answer.hash}
        return answer, body | {"moves": [[name, owner, ""] for name, owner in wanted.items()]}

    # --- on the leader, right before it acts ---

    async def unloads_of(self, sources: Mapping[str, str], *, override_cool_down: bool) -> Unloads:
        """What of these bundles (bundle -> the broker it is to leave) may go in this cycle, what waits, what stays."""
        owners, refused = await self._owners(sources)
        left = {name: owner for name, owner in owners.items() if owner != sources[name]}
        refused += [Refusal(Code.OWNER_CHANGED, name, sources[name], f"owned by {left[name]} now") for name in left]
        here = {name: owner for name, owner in owners.items() if name not in left}
        made = await self._unloads(here, override_cool_down=override_cool_down)
        waiting = [item for item in refused if item.code in PASSING]
        stays = [item for item in refused if item.code not in PASSING]
        return replace(made, waiting=(*waiting, *made.waiting), refused=(*stays, *made.refused))

    async def moves_of(self, body: Mapping[str, Any]) -> tuple[Move, ...]:
        """The one move of a request, planned again. Conflict with what has changed."""
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
        made = await self._planned(bundle, owner, target, override_cool_down=bool(body.get("override_cool_down")))
        if made.move is None:
            assert made.refusal is not None
            said = _text(made.refusal)
            raise Conflict(f"not carried out: {said}", code=made.refusal.code.value, difference=[said])
        return (made.move,)

    async def split_of(self, body: Mapping[str, Any]) -> Split:
        """The split of a request. Where to cut is computed anew; where the load divides, when it is carried out."""
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
            said = _text(Refusal(Code(error.code), detail=error.error))
            raise Conflict(f"not carried out: {said}", code=error.code, difference=[said]) from error
        halves = algorithm is SplitAlgorithm.RANGE
        return Split(bundle=bundle, broker=source, rule=RULE, value=0.0, limit=0.0, at=at, halves=halves)

    # --- parts ---

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
            raise StoreError(f"who owns {bundle} cannot be read: {error}") from error
        if owner is None:
            # Extensible brokers hold such bundles without an entry in the channel: no lookup assigns them.
            code = Code.SYSTEM_BUNDLE if is_system_bundle(bundle) else Code.UNOWNED
            raise Conflict(f"{bundle}: {EXPLANATIONS[code]}", code=code.value, difference=[code.value])
        if owner.disabled:
            code = Code.IN_TRANSIT
            raise Conflict(f"{bundle}: {EXPLANATIONS[code]}", code=code.value, difference=[code.value])
        return owner.broker_id

    async def _owners(self, bundles: Iterable[str]) -> tuple[dict[str, str], list[Refusal]]:
        """bundle -> its owner, and why the others have none."""
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
        made = await asyncio.to_thread(manual_move, request, bundle, owner, to, override_cool_down=override_cool_down)
        if made.refusal is None:
            return made
        return replace(made, refusal=self._left_alone().explain(made.refusal))

    async def _unloads(self, owners: Mapping[str, str], *, override_cool_down: bool) -> Unloads:
        request = await self._with_policies(owners)
        # With many brokers each bundle takes milliseconds.
        made = await asyncio.to_thread(unload_all, request, owners, override_cool_down=override_cool_down)
        return replace(made, refused=tuple(map(self._left_alone().explain, made.refused)))

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

    async def _with_policies(self, owners: Mapping[str, str]) -> Request:
        """What a plan of moves depends on, with each of these bundles at its owner, and policies read anew."""
        owned: dict[str, list[str]] = {}
        for bundle, owner in owners.items():
            owned.setdefault(owner, []).append(bundle)
        snapshot = with_owned(self.cycle.demand_snapshot(), owned)
        policies = await self.cycle.policies.read(snapshot.bundles.namespaces)
        return replace(self._request(snapshot), policies=policies)

    def _request(self, snapshot: Snapshot) -> Request:
        given = self.cycle.plan_input(snapshot)
        return Request(
            snapshot=snapshot,
            ledger=given.ledger,
            guard=given.guard,
            params=given.params,
            memory=given.memory,
            policies=given.policies,
            owned=given.owned,
        )

    def _may_split(self, bundle: str, owner: str, algorithm: SplitAlgorithm | None) -> None:
        """SplitRefused when the guard binds the bundle, or its owner does not support that split. Policies bind it to
        brokers, and children stay where it is."""
        snapshot = with_owned(self.cycle.demand_snapshot(), {owner: [bundle]})
        movable, found = by_person(self._request(snapshot))
        row = next(iter(snapshot.bundles.rows_named({bundle})), -1)
        if row >= 0 and not movable[row] and found.codes[row] not in POLICIES:
            refusal = self._left_alone().explain(Refusal(found.codes[row], bundle, owner))
            raise SplitRefused(refusal.code, refusal.detail)
        known = (self.cycle.config.values(owner) or {}).get("supportedNamespaceBundleSplitAlgorithms")
        if known is not None:
            # What the broker is asked for, and what a person asked for: the broker's settings may leave either out.
            sent = SplitAlgorithm.RANGE if algorithm is SplitAlgorithm.RANGE else SplitAlgorithm.POSITIONS
            supported = [item.strip() for item in known.strip("[]").split(",")]
            missing = [item for item in dict.fromkeys((algorithm or sent, sent)) if item not in supported]
            if missing:
                raise SplitRefused(Code.NOT_SUPPORTED, f"{owner} has {', '.join(supported)}; not {', '.join(missing)}")

    async def _resolved(self, name: str) -> tuple[str, str]:
        """The name of the bundle meant by `TENANT/NAMESPACE/LARGEST`, and why that one; any other name as it is."""
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
        found = largest_bundle(self.cycle.demand_snapshot().bundles, namespace)
        if found is None:
            code = Code.NO_BUNDLES.value
            raise Conflict(f"no broker reports a bundle of {namespace}", code=code, difference=[code])
        return found[0], f", the largest by load ({found[1]}),"

    async def _cut(
        self, bundle: str, owner: str, at: tuple[int, ...], algorithm: SplitAlgorithm | None
    ) -> SplitChildren:
        """The children that would be made. SplitRefused where there is no place to cut."""
        try:
            topics = await self.cycle.admin.topic_loads(bundle, owner)
        except AdminApiError as error:
            raise SplitRefused(Code.ADMIN_REFUSED, str(error)) from error
        if algorithm not in (None, SplitAlgorithm.POSITIONS):
            at = self._boundaries(bundle, owner, topics, algorithm)
        if len(at) > 1 and self.cycle.demand_snapshot().mode == "extensible":
            raise SplitRefused(Code.NOT_SUPPORTED, f"{len(at)} boundaries; {ONE_BOUNDARY}")
        request = SplitRequest(
            bundle=bundle,
            broker=owner,
            rule=RULE,
            max_bundles=self.cycle.params.split_max_bundles,
            at=at,
            halves=algorithm is SplitAlgorithm.RANGE,
        )
        return cut_of(request, topics)

    def _boundaries(
        self, bundle: str, owner: str, topics: Sequence[TopicLoad], algorithm: SplitAlgorithm | None
    ) -> tuple[int, ...]:
        """Where the broker would cut by this algorithm, with its own limits. SplitRefused where it would not."""
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
        found = flow_or_qps_equally_divide(flows, max_msg_rate=rate, max_bandwidth_mb=size, difference_percent=over)
        if not found:
            carried = f"it has {sum(flow.msg_rate for flow in flows):,.0f} msg/s"
            limits = f"{owner} cuts above {rate:,.0f} msg/s or {size:,.0f} MiB/s, and {over:.0f} % more"
            raise SplitRefused(Code.NO_BOUNDARY, f"{algorithm}: {carried}, {limits}")
        return found


def _answer(
    kind: str,
    name: str,
    whole: WholeBundle,
    made: ManualPlan,
    *,
    candidates: list[CandidateView],
    override_cool_down: bool,
) -> ManualMoveView:
    move = made.move
    sentence = whole.sentence if made.refusal is None else whole.said_of("would move")
    return ManualMoveView(
        kind=kind,
        name=name,
        bundle=made.bundle,
        source=made.source,
        target=move.target if move is not None else None,
        move=move_view(move) if move is not None else None,
        refusals=[refusal_view(made.refusal)] if made.refusal is not None else [],
        candidates=candidates,
        loads=list(made.loads),
        sentence=f"{sentence}; refused: {_text(made.refusal)}" if made.refusal is not None else sentence,
        hash=_hash(kind, made.bundle, made.source, move.target if move is not None else ""),
        override_cool_down=override_cool_down,
    )


def _check_taken(algorithm: SplitAlgorithm | None, at: Sequence[int]) -> None:
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
        told, allowed = ", ".join(outside), f"above 0x{name.lower:08x} and below 0x{name.upper:08x}"
        raise ConfigError(f"{bundle} has no boundary at {told}", field="at", value=told, allowed=allowed)


def _position(hash_: int) -> str:
    return f"0x{hash_:08x}"


def _text(refusal: Refusal) -> str:
    return f"{EXPLANATIONS[refusal.code]}{f' ({refusal.detail})' if refusal.detail else ''}"


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
