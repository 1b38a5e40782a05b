"""Splits: an operator divides a bundle at its owner."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from bundlekeel.leader.cycle.planner import refusal_view
from bundlekeel.leader.execution.splits import ONE_BOUNDARY, SplitRefused, cut_of, positions_of
from bundlekeel.model.codes import Code
from bundlekeel.model.errors import AdminApiError, CodecError, ConfigError, Conflict, NotFound
from bundlekeel.model.names import parse_bundle
from bundlekeel.model.numbers import number
from bundlekeel.model.plan import Refusal
from bundlekeel.model.plan import Split as PlannedSplit
from bundlekeel.model.response_fields import Json
from bundlekeel.planning.manual_moves import RULE
from bundlekeel.planning.owned import with_owned
from bundlekeel.planning.relocation import by_person
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
from bundlekeel.ports import TopicLoad
from bundlekeel.pulsar.existing_names import bundles_of
from bundlekeel.requests.manual_moves import UNREADABLE, ChildView, ManualMoves, ManualMoveView, hash_of, text_of
from bundlekeel.requests.where import whole_bundles

# Broker settings of the split algorithm `flow_or_qps_equally_divide`, with Pulsar's defaults in msg/s, MiB/s and
# per cent.
FLOW_LIMITS: Final = {
    "loadBalancerNamespaceBundleMaxMsgRate": "30000",
    "loadBalancerNamespaceBundleMaxBandwidthMbytes": "100",
    "flowOrQpsDifferenceThresholdPercentage": "10",
}
POLICIES = (Code.POLICY_FORBIDS, Code.POLICY_WITHOUT_BROKERS, Code.POLICY_UNREADABLE, Code.HAS_POLICY)


class Split(ManualMoves):
    """The request to split a bundle."""

    async def split(
        self, name: str, *, options: SplitOptions = BY_LOAD, execute: bool = False, reason: str = "", by: str = ""
    ) -> ManualMoveView:
        """Split one bundle; a dry run unless `execute`."""
        answer, operator_request = await self.plan_split(name, options)
        return await self._respond("split", answer, operator_request, execute=execute, reason=reason, by=by)

    async def plan_split(self, name: str, options: SplitOptions = BY_LOAD) -> tuple[ManualMoveView, Json]:
        """Return the dry run of a split, and the request for the leader.

        `name`: a bundle, a topic, or `TENANT/NAMESPACE/LARGEST` for the bundle of a namespace with the highest load.
        """
        algorithm, at = options.algorithm, options.at
        _check_positions(algorithm, at)
        name, largest = await self._resolved(name)
        whole = await self._whole(name)
        _check_inside(whole.bundle, at)
        owner = await self._owner(whole.bundle)
        then = (
            "then each new bundle moves to the broker with the most free capacity"
            if options.unload
            else "nothing moves"
        )
        place = f"split by its owner {owner}; {then}"
        answer = ManualMoveView(
            kind="split",
            name=name,
            bundle=whole.bundle,
            source=owner,
            hash=hash_of("split", whole.bundle, owner, ""),
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
        hash_ = hash_of("split", owner, *cut.children, *(["unload"] if options.unload else []))
        answer = replace(answer, children=children, hash=hash_)
        body = {"kind": "split", "bundle": whole.bundle, "source": owner, "at": list(at), "unload": options.unload}
        body |= {"algorithm": answer.algorithm, "hash": hash_}
        return answer, body | {"moves": [[whole.bundle, owner, ""]]}

    async def split_of(self, body: Mapping[str, Any]) -> PlannedSplit:
        """Plan the split that a stored request contains again, with boundaries from the current topics.

        A split by load gets its boundaries later, when it is executed. Raises Conflict if the split is not possible."""
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
            text = text_of(Refusal(Code(error.code), detail=error.error))
            raise Conflict(f"not carried out: {text}", code=error.code, difference=[text]) from error
        return _split(bundle, source, at, algorithm)

    def _may_split(self, bundle: str, owner: str, algorithm: SplitAlgorithm | None) -> None:
        """Raise SplitRefused if a pause, pin or other limit on moves blocks the bundle, or its owner lacks the
        algorithm.

        Policies that bind a bundle to brokers do not block a split, because the new bundles stay at the owner."""
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
        """Return the boundaries at which the broker would split, by the broker's algorithm and limits.

        Raises SplitRefused if the broker would not split the bundle."""
        name = parse_bundle(bundle)
        if algorithm is SplitAlgorithm.RANGE:
            return range_equally_divide(name.lower, name.upper)
        if len(topics) < 2:
            raise SplitRefused(Code.SINGLE_TOPIC, f"{algorithm} divides topics")
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
            limits = f"{owner} splits only {over:.0f} % above {rate:,.0f} msg/s or {size:,.0f} MiB/s"
            raise SplitRefused(Code.NO_BOUNDARY, f"{algorithm}: {carried}, {limits}")
        return boundaries


def _split(bundle: str, broker: str, at: Sequence[int], algorithm: SplitAlgorithm | None) -> PlannedSplit:
    halves = algorithm is SplitAlgorithm.RANGE
    return PlannedSplit(
        bundle=bundle, broker=broker, rule=RULE, value=0.0, limit=0.0, hits=0, at=tuple(at), halves=halves
    )


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
