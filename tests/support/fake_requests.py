"""What people asked of brokers and bundles, for API and CLI tests: answers as `views_operations` documents them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bundlekeel.core.model.codes import EXPLANATIONS, Code
from bundlekeel.core.model.errors import NotFound
from bundlekeel.core.splitting.algorithms import BY_LOAD, SplitOptions
from bundlekeel.daemon.answers_operations import Json, OperationsService, Verb
from tests.support.fake_places import BROKERS

NOW_MS = 1_790_000_000_000
BUNDLE = "shop/orders/0x00000000_0x10000000"


def _refusal(code: Code) -> Json:
    said = {"code": code.value, "bundle": BUNDLE, "broker": BROKERS[0], "detail": ""}
    return said | {"explanation": EXPLANATIONS[code]}


def move() -> Json:
    """One move by hand."""
    scores = {"source_before": 0.82, "source_after": 0.52, "target_before": 0.07, "target_after": 0.37}
    return {
        "bundle": BUNDLE,
        "source": BROKERS[0],
        "target": BROKERS[2],
        "rule": "by hand",
        **scores,
        "sentence": f"{BUNDLE}: {BROKERS[0]} 82.0% -> 52.0%, {BROKERS[2]} 7.0% -> 37.0% (by hand)",
    }


class FakeWishes:
    """Implements `OperationsService`. `left` bundles are on a draining broker, one less each time it is asked."""

    def __init__(self, called: Callable[[str, Any], None]) -> None:
        self._called = called
        self.left = 2
        self.refused: Code | None = None
        self.review: str | None = None

    def operations(self) -> Json:
        """A drain that goes on, and one of everything else."""
        self._called("operations", None)
        self.left = max(0, self.left - 1)
        who = {"by": "ann", "reason": "disks", "since_ms": NOW_MS}
        drain = {
            "broker": BROKERS[1],
            **who,
            "state": "draining" if self.left else "empty",
            "left": self.left,
            "moved": 4 - self.left,
            "blocked": {"Pinned": 1} if self.left else {},
            "eta_seconds": 12.5,
            "emptied_ms": 0,
            "bundle_seconds": 40.0,
            "detail": "",
        }
        return {
            "drains": [drain],
            "cordons": [{"broker": BROKERS[2], **who}],
            "warms": [{"broker": BROKERS[0], **who}],
            "pins": [{"bundle": BUNDLE, "until_ms": 0}],
            "exclusions": [{"pattern": "t:shop", "until_ms": NOW_MS}],
            "pauses": [{"scope": "tenant:shop", **who, "until_ms": 0}],
        }

    def _relocation(self, broker: str, *, dry_run: bool) -> Json:
        return {
            "broker": broker,
            "dry_run": dry_run,
            "bundles": 2,
            "moves": [move()],
            "refusals": [_refusal(Code.PINNED)],
            "refusal_counts": {"Pinned": 1},
            "eta_seconds": 1.0,
            "sentence": f"1 bundles leave {broker}, 1 stay for now",
            "detail": "",
        }

    async def drain(self, broker: str, *, dry_run: bool, reason: str, by: str) -> Json:
        """One moves, one is pinned."""
        self._called("drain", (broker, dry_run, reason, by))
        return self._relocation(broker, dry_run=dry_run)

    async def warm(self, broker: str, *, dry_run: bool, reason: str, by: str) -> Json:
        """As a drain."""
        self._called("warm", (broker, dry_run, reason, by))
        return self._relocation(broker, dry_run=dry_run)

    async def cordon(self, broker: str, *, reason: str, by: str) -> Json:
        """Done."""
        self._called("cordon", (broker, reason, by))
        return {"broker": broker, "state": "cordoned"}

    async def uncordon(self, broker: str, *, reason: str, by: str) -> Json:
        """NotFound for a broker that is not cordoned."""
        self._called("uncordon", (broker, reason, by))
        if broker == BROKERS[0]:
            raise NotFound(f"{broker} is neither cordoned nor drained nor warmed")
        return {"broker": broker, "ended": ["cordon"]}

    async def pin(self, bundle: str, *, seconds: float | None, reason: str, by: str) -> Json:
        """Done."""
        self._called("pin", (bundle, seconds, reason, by))
        return {"bundle": bundle, "broker": BROKERS[0], "until_ms": 0}

    async def unpin(self, bundle: str, *, reason: str, by: str) -> Json:
        """Done."""
        self._called("unpin", (bundle, reason, by))
        return {"bundle": bundle}

    async def exclude(self, pattern: str, *, seconds: float | None, reason: str, by: str) -> Json:
        """Done."""
        self._called("exclude", (pattern, seconds, reason, by))
        return {"pattern": pattern, "until_ms": 0, "bundles": 4}

    async def include(self, pattern: str, *, reason: str, by: str) -> Json:
        """Done."""
        self._called("include", (pattern, reason, by))
        return {"pattern": pattern}

    async def pause_scope(self, scope: str, *, seconds: float | None, reason: str, by: str) -> Json:
        """Done."""
        self._called("pause_scope", (scope, seconds, reason, by))
        return {"scope": scope, "reason": reason, "by": by, "since_ms": NOW_MS, "until_ms": None, "bundles": 0}

    async def resume_scope(self, scope: str, *, reason: str, by: str) -> Json:
        """Done."""
        self._called("resume_scope", (scope, reason, by))
        return {"scope": scope, "reason": reason, "by": by}

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
    ) -> Json:
        """A move or a split; refused with `refused`, proposed with `review`."""
        how = (options,) if verb == "split" else (to, override_cool_down)
        self._called("manual_move", (verb, name, *how, execute, reason, by))
        answer: Json = {
            "kind": verb,
            "name": name,
            "bundle": BUNDLE,
            "source": BROKERS[0],
            "target": BROKERS[2],
            "move": None if verb == "split" or self.refused else move(),
            "children": [{"bundle": BUNDLE, "topics_ratio": 0.5, "msg_rate_ratio": 0.4, "throughput_ratio": 0.6}],
            "candidates": [
                {"broker": BROKERS[1], "score_before": 0.41, "score_after": None, "code": "PolicyForbids"}
                | {"explanation": EXPLANATIONS[Code.POLICY_FORBIDS]},
                {"broker": BROKERS[2], "score_before": 0.07, "score_after": 0.37, "code": None, "explanation": ""},
            ],
            "refusals": [_refusal(self.refused)] if self.refused else [],
            "loads": [],
            "sentence": f"{BUNDLE} moves with its 3 known topics",
            "hash": "5f0c3a1be2d4977a",
            "dry_run": not execute,
            "task": "t-1" if execute and not self.review else None,
            "state": "waiting" if execute else "planned",
            "review": self.review if execute else None,
        }
        return answer

    async def unload_namespace(
        self,
        namespace: str,
        *,
        override_cool_down: bool = False,
        execute: bool = False,
        reason: str = "",
        by: str = "",
    ) -> Json:
        """One bundle moves, one is pinned; all of them are with `refused`."""
        self._called("unload_namespace", (namespace, override_cool_down, execute, reason, by))
        return {
            "kind": "unload",
            "namespace": namespace,
            "bundles": 2,
            "moves": [] if self.refused else [move()],
            "refusals": [_refusal(Code.PINNED)],
            "refusal_counts": {"Pinned": 1},
            "eta_seconds": 1.0,
            "sentence": f"1 of 2 bundles of {namespace} leave their brokers; 1 fit the budgets of one cycle",
            "hash": "5f0c3a1be2d4977a",
            "dry_run": not execute,
            "task": "t-1" if execute and not self.review else None,
            "state": "waiting" if execute else "planned",
            "review": self.review if execute else None,
        }

    async def task(self, task: str) -> Json:
        """One task; NotFound for others."""
        self._called("task", task)
        if task != "t-1":
            raise NotFound(f"no task {task}")
        return {"task": task, "kind": "plan", "hash": "5f0c3a1be2d4977a", "state": "running", "detail": ""}

    async def stop(self, task: str, *, reason: str, by: str) -> Json:
        """Done."""
        self._called("stop", (task, reason, by))
        return {"task": task, "state": "stopping"}

    def _proposal(self, state: str, reviewer: str = "") -> Json:
        return {
            "id": "5f0c3a1be2d4977a",
            "kind": "plan",
            "title": "plan 5f0c3a1be2d4977a: 3 moves",
            "by": "ann",
            "reason": "even it out",
            "at_ms": NOW_MS,
            "state": state,
            "reviewer": reviewer,
            "remark": "",
            "decided_ms": 0,
            "task": "",
            "actions": ["approve", "discard"] if state == "proposed" else [],
        }

    async def reviews(self) -> list[Json]:
        """One proposal."""
        self._called("reviews", None)
        return [self._proposal("proposed")]

    async def approve(self, id_: str, *, reason: str, by: str) -> Json:
        """Approved."""
        self._called("approve", (id_, reason, by))
        return self._proposal("executing", by)

    async def discard(self, id_: str, *, reason: str, by: str) -> Json:
        """Discarded."""
        self._called("discard", (id_, reason, by))
        return self._proposal("discarded", by)


_: type[OperationsService] = FakeWishes
