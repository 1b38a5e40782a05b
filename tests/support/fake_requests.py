"""Operators' requests about brokers and bundles, for API and CLI tests: responses as `answers.operations` defines
them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bundlekeel.leader.state.responses import OutcomeView, TaskView
from bundlekeel.model.codes import EXPLANATIONS, Code, explain
from bundlekeel.model.errors import NotFound
from bundlekeel.model.response_fields import Json
from bundlekeel.model.text_format import unknown_broker
from bundlekeel.planning.splitting.algorithms import BY_LOAD, SplitOptions
from bundlekeel.requests.manual_move_responses import (
    CandidateView,
    ChildView,
    ManualMoveView,
    NamespaceUnloadView,
    Verb,
)
from bundlekeel.requests.operator_responses import (
    CordonedView,
    DrainView,
    ExcludedView,
    ExclusionView,
    IncludedView,
    OperationsView,
    PausedScopeView,
    PinnedView,
    PinView,
    RelocationView,
    RequestView,
    ResumedScopeView,
    ReviewView,
    ScopePauseView,
    Stopping,
    UncordonedView,
    UnpinnedView,
)
from tests.support.fake_places import BROKERS, BUNDLE, NOW_MS, OWNERS, SCORES, move, refusal, until_ms


class FakeWishes:
    """Requests in memory.

    `left` bundles are on a draining broker, one less per call. `coming`: bundles that move to a broker being warmed;
    None: no warm yet. `unseen`: number of calls before it sees the drain, as on a follower. `ended`: a warm ends before
    it is first read.
    """

    def __init__(self, called: Callable[[str, Any], None]) -> None:
        self._called = called
        self.left = 2
        self.coming: int | None = None
        self.ended = False
        self.unseen = 0
        self.refused: Code | None = None
        self.refused_target: Code | None = None
        self.review: str | None = None
        self.held = ""

    async def operations(self) -> OperationsView:
        """A running drain, and one of every other request."""
        self._called("operations", None)
        self.unseen -= 1
        self.left = max(0, self.left - 1)
        warmed = []
        if self.coming and not self.ended:
            self.coming, warmed = self.coming - 1, [BROKERS[1]]
        who: Json = {"by": "ann", "reason": "disks", "since_ms": NOW_MS}
        drain = DrainView(
            broker=BROKERS[1],
            **who,
            state="draining" if self.left else "empty",
            left=self.left,
            moved=4 - self.left,
            blocked={"Pinned": 1} if self.left else {},
            eta_seconds=12.5,
            emptied_ms=0,
            bundle_seconds=40.0,
            detail="",
        )
        return OperationsView(
            held=self.held,
            held_explanation=explain(self.held),
            drains=[] if self.unseen >= 0 else [drain],
            cordons=[RequestView(broker=BROKERS[2], **who)],
            warms=[RequestView(broker=broker, **who) for broker in (BROKERS[0], *warmed)],
            pins=[PinView(bundle=BUNDLE, until_ms=0, **who)],
            exclusions=[ExclusionView(pattern="t:shop", until_ms=NOW_MS, **who)],
            pauses=[ScopePauseView(scope="tenant:shop", **who, until_ms=0)],
        )

    async def drain(self, broker: str, *, dry_run: bool, reason: str, by: str) -> RelocationView:
        """Move one bundle to the least loaded broker; one is pinned. Raises NotFound if the broker is unknown."""
        self._called("drain", (broker, dry_run, reason, by))
        leaving, pinned, *_ = _bundles_of(broker)
        return RelocationView(
            broker=broker,
            dry_run=dry_run,
            bundles=2,
            moves=[move("drain", leaving, _others(broker)[-1])],
            refusals=[refusal(Code.PINNED, pinned, broker)],
            refusal_counts={"Pinned": 1},
            eta_seconds=1.0,
            sentence=f"1 bundle leaves {broker}, 1 stays for now",
            detail="",
        )

    async def warm(self, broker: str, *, dry_run: bool, reason: str, by: str) -> RelocationView:
        """Move one bundle from the most loaded broker. Raises NotFound if the broker is unknown."""
        self._called("warm", (broker, dry_run, reason, by))
        self.coming = self.coming if dry_run else 1
        coming = _bundles_of(_others(broker)[0])[0]
        view = RelocationView(
            broker=broker,
            dry_run=dry_run,
            bundles=1,
            moves=[move("warm", coming, broker)],
            refusals=[],
            refusal_counts={},
            eta_seconds=1.0,
            sentence=f"1 bundle comes to {broker}",
            detail="",
        )
        if self.coming == 0:
            return replace(view, bundles=0, moves=[], eta_seconds=0.0, sentence=f"0 bundles come to {broker}")
        return view

    async def cordon(self, broker: str, *, reason: str, by: str) -> CordonedView:
        self._called("cordon", (broker, reason, by))
        return CordonedView(broker=broker, state="cordoned")

    async def uncordon(self, broker: str, *, reason: str, by: str) -> UncordonedView:
        """Uncordon a broker. Raises NotFound if it is not cordoned."""
        self._called("uncordon", (broker, reason, by))
        if broker == BROKERS[0]:
            raise NotFound(f"{broker} is neither cordoned nor drained nor warmed")
        return UncordonedView(broker=broker, ended=["cordon"])

    async def pin(self, bundle: str, *, seconds: float | None, reason: str, by: str) -> PinnedView:
        self._called("pin", (bundle, seconds, reason, by))
        who: Json = {"by": by, "reason": reason, "since_ms": NOW_MS}
        return PinnedView(bundle=bundle, broker=OWNERS.get(bundle, BROKERS[0]), until_ms=until_ms(seconds), **who)

    async def unpin(self, bundle: str, *, reason: str, by: str) -> UnpinnedView:
        self._called("unpin", (bundle, reason, by))
        return UnpinnedView(bundle=bundle)

    async def exclude(self, pattern: str, *, seconds: float | None, reason: str, by: str) -> ExcludedView:
        self._called("exclude", (pattern, seconds, reason, by))
        who: Json = {"by": by, "reason": reason, "since_ms": NOW_MS}
        return ExcludedView(pattern=pattern, until_ms=until_ms(seconds), bundles=4, **who)

    async def include(self, pattern: str, *, reason: str, by: str) -> IncludedView:
        self._called("include", (pattern, reason, by))
        return IncludedView(pattern=pattern)

    async def pause_scope(self, scope: str, *, seconds: float | None, reason: str, by: str) -> PausedScopeView:
        self._called("pause_scope", (scope, seconds, reason, by))
        until = None if seconds is None else until_ms(seconds)
        bundles = sum(bundle.startswith(f"{scope.partition(':')[2]}/") for bundle in OWNERS)
        return PausedScopeView(scope=scope, reason=reason, by=by, since_ms=NOW_MS, until_ms=until, bundles=bundles)

    async def resume_scope(self, scope: str, *, reason: str, by: str) -> ResumedScopeView:
        self._called("resume_scope", (scope, reason, by))
        return ResumedScopeView(scope=scope, reason=reason, by=by)

    async def manual_move(
        self,
        verb: Verb,
        name: str,
        *,
        to: str = "",
        options: SplitOptions = BY_LOAD,
        override_cool_down: bool = False,
        execute: bool = False,
        reason: str = "",
        by: str = "",
    ) -> ManualMoveView:
        """Move or split a bundle. It is refused with `refused`, proposed with `review`, and policies forbid all targets
        except `to` or the least loaded broker. Raises NotFound if the broker is unknown.
        """
        how = (options,) if verb == "split" else (to, override_cool_down)
        self._called("manual_move", (verb, name, *how, execute, reason, by))
        bundle = name if name in OWNERS else BUNDLE
        source = OWNERS[bundle]
        answer = ManualMoveView(
            kind=verb,
            name=name,
            bundle=bundle,
            source=source,
            refusals=[refusal(self.refused, bundle, source)] if self.refused else [],
            sentence=f"{bundle} is divided at its owner {source}; nothing moves",
            hash="5f0c3a1be2d4977a",
            dry_run=not execute,
            task="req-0000000012" if execute and not self.review else None,
            state="waiting" if execute else "planned",
            review=self.review if execute else None,
        )
        if verb == "split":
            return replace(answer, children=_children(bundle))
        result = move("by hand", bundle, _check_broker(to) if to else _others(source)[-1])
        why = f"; refused: {EXPLANATIONS[self.refused]}" if self.refused else ""
        return replace(
            answer,
            sentence=f"{bundle} moves with its 3 known topics{why}",
            target=result.target,
            move=None if self.refused else result,
            candidates=[
                CandidateView(
                    broker=broker,
                    score_before=SCORES[broker],
                    score_after=result.target_after if broker == result.target else None,
                    code=self.refused_target if broker == result.target else "PolicyForbids",
                    explanation="" if broker == result.target else EXPLANATIONS[Code.POLICY_FORBIDS],
                )
                for broker in _others(source)
            ],
        )

    async def unload_namespace(
        self,
        namespace: str,
        *,
        override_cool_down: bool = False,
        execute: bool = False,
        reason: str = "",
        by: str = "",
    ) -> NamespaceUnloadView:
        """Move one bundle; one is pinned, or all with `refused`. Raises NotFound if the namespace has no bundle."""
        self._called("unload_namespace", (namespace, override_cool_down, execute, reason, by))
        bundles = [bundle for bundle in OWNERS if bundle.startswith(f"{namespace}/")]
        if not bundles:
            raise NotFound(f"namespace {namespace} does not exist")
        leaving, pinned, *_ = bundles
        return NamespaceUnloadView(
            kind="unload",
            namespace=namespace,
            bundles=2,
            moves=[] if self.refused else [move("by hand", leaving)],
            refusals=[refusal(Code.PINNED, pinned, OWNERS[pinned])],
            refusal_counts={"Pinned": 1},
            eta_seconds=1.0,
            sentence=f"1 of 2 bundles of {namespace} to unload; 1 within the budgets of one cycle",
            hash="5f0c3a1be2d4977a",
            dry_run=not execute,
            task="req-0000000012" if execute and not self.review else None,
            state="waiting" if execute else "planned",
            review=self.review if execute else None,
            override_cool_down=override_cool_down,
            waiting=[],
        )

    async def task(self, task: str) -> TaskView:
        """Return the only task. Raises NotFound if `task` is another one."""
        self._called("task", task)
        if task != "req-0000000012":
            raise NotFound(f"no task {task}")
        stayed = OutcomeView(bundle=BUNDLE, outcome="landed_elsewhere", landed_on=BROKERS[0], code=Code.STILL_AT_SOURCE)
        return TaskView(
            task=task,
            hash="5f0c3a1be2d4977a",
            state="failed",
            kind="transfer",
            reason="even it out",
            by="ann",
            left_ms=NOW_MS,
            detail="0 of 1 landed where asked",
            moves=[stayed],
        )

    async def stop(self, task: str, *, reason: str, by: str) -> Stopping:
        self._called("stop", (task, reason, by))
        return Stopping(task=task, state="stopping")

    def _proposal(self, id_: str, state: str, reviewer: str = "", remark: str = "", task: str = "") -> ReviewView:
        return ReviewView(
            id=id_,
            kind="plan",
            title=f"plan {id_}: 1 move",
            by="ann",
            reason="even it out",
            at_ms=NOW_MS,
            state=state,
            reviewer=reviewer,
            remark=remark,
            decided_ms=NOW_MS if reviewer else 0,
            task=task,
            actions=["approve", "discard"] if state == "proposed" else [],
        )

    async def reviews(self) -> list[ReviewView]:
        """One proposal."""
        self._called("reviews", None)
        return [self._proposal("5f0c3a1be2d4977a", "proposed")]

    async def approve(self, id_: str, *, reason: str, by: str) -> ReviewView:
        self._called("approve", (id_, reason, by))
        return self._proposal(id_, "executing", by, reason, "req-0000000012")

    async def discard(self, id_: str, *, reason: str, by: str) -> ReviewView:
        self._called("discard", (id_, reason, by))
        return self._proposal(id_, "discarded", by, reason)


def _check_broker(broker: str) -> str:
    """Return `broker`. Raises NotFound if it is unknown."""
    if broker not in BROKERS:
        raise NotFound(unknown_broker(broker, BROKERS))
    return broker


def _others(broker: str) -> list[str]:
    """All but this broker, the most loaded one first. NotFound."""
    return [other for other in BROKERS if other != _check_broker(broker)]


def _bundles_of(broker: str) -> list[str]:
    """Return the bundles of a broker. Raises NotFound if it is unknown."""
    return [bundle for bundle, owner in OWNERS.items() if owner == _check_broker(broker)]


def _children(bundle: str) -> list[ChildView]:
    """Return the two halves of a bundle."""
    namespace, _, span = bundle.rpartition("/")
    lower, upper = (int(end, 16) for end in span.split("_"))
    ends = (lower, (lower + upper) // 2, upper)
    return [
        ChildView(
            bundle=f"{namespace}/0x{low:08x}_0x{high:08x}",
            topics_ratio=0.5,
            msg_rate_ratio=share,
            throughput_ratio=1.0 - share,
        )
        for low, high, share in zip(ends, ends[1:], (0.4, 0.6), strict=False)
    ]
