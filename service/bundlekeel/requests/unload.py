"""Unloads: a bundle, or each bundle of a namespace, moves to the broker with most headroom.

A request to unload a namespace contains only the bundles and their present brokers. Its execution takes many cycles,
and the target of each bundle is selected right before the bundle moves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from bundlekeel.leader.cycle.plan_responses import MoveView, RefusalView
from bundlekeel.leader.cycle.planner import counted, move_view, refusal_view
from bundlekeel.model.codes import Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.errors import Conflict
from bundlekeel.model.plan import Refusal
from bundlekeel.model.response_fields import Hash, Json, Sentence
from bundlekeel.model.text_format import numbered
from bundlekeel.planning.manual_moves import PASSING, Unloads, unload_all
from bundlekeel.pulsar.existing_names import bundles_of
from bundlekeel.requests.manual_moves import ManualMoveState, ManualMoveView, TaskId, hash_of
from bundlekeel.requests.move import Move
from bundlekeel.requests.verb import DryRun, Held, HeldExplanation, ReviewId


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceUnloadView(Answer):
    """The unload of all bundles of a namespace."""

    kind: Annotated[str, Doc("kind of the request", of=("unload",))]
    namespace: Annotated[str, Doc("tenant/namespace")]
    bundles: Annotated[int, Doc("number of bundles in the namespace")]
    moves: Annotated[
        list[MoveView], Doc("moves as planned now; the target of each bundle is selected again when it moves")
    ]
    waiting: Annotated[list[RefusalView], Doc("bundles that do not leave in the next cycle, with reasons")]
    refusals: Annotated[list[RefusalView], Doc("bundles that stay, with reasons")]
    refusal_counts: Annotated[dict[str, int], Doc("number of bundles that stay, by code", keys=Code)]
    sentence: Sentence
    override_cool_down: Annotated[bool, Doc("whether bundles move despite their cool-down")]
    hash: Hash
    eta_seconds: Annotated[float | None, Doc("estimated duration of the moves alone; null: none may move")] = None
    dry_run: DryRun = True
    task: TaskId = None
    state: ManualMoveState = "planned"
    review: ReviewId = None
    held: Held = ""
    held_explanation: HeldExplanation = ""


class Unload(Move):
    """The request to unload a bundle or a namespace."""

    async def unload(
        self, name: str, *, override_cool_down: bool = False, execute: bool = False, reason: str = "", by: str = ""
    ) -> ManualMoveView:
        """Move one bundle to the broker with most headroom; a dry run unless `execute`."""
        answer, operator_request = await self.plan_move(name, override_cool_down=override_cool_down)
        return await self._respond("unload", answer, operator_request, execute=execute, reason=reason, by=by)

    async def unload_namespace(
        self,
        namespace: str,
        *,
        override_cool_down: bool = False,
        execute: bool = False,
        reason: str = "",
        by: str = "",
    ) -> NamespaceUnloadView:
        """Unload every bundle of a namespace; a dry run unless `execute`."""
        answer, operator_request = await self.plan_unloads(namespace, override_cool_down=override_cool_down)
        answer = replace(answer, eta_seconds=self.drain_tracker.eta(len(answer.moves)) if operator_request else None)
        return await self._respond("unload", answer, operator_request, execute=execute, reason=reason, by=by)

    async def plan_unloads(
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
            hash=hash_of("unload", namespace, *(f"{name}@{owner}" for name, owner in sorted(sources.items()))),
        )
        if not sources:
            return answer, {}
        body = {"kind": "unload", "sources": sources, "override_cool_down": override_cool_down, "hash": answer.hash}
        return answer, body | {"moves": [[name, owner, ""] for name, owner in sources.items()]}

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

    async def _owners(self, bundles: Iterable[str]) -> tuple[dict[str, str], list[Refusal]]:
        owners, refused = dict[str, str](), list[Refusal]()
        for bundle in bundles:
            try:
                owners[bundle] = await self._owner(bundle)
            except Conflict as error:
                refused.append(Refusal(Code(error.difference[0]), bundle))
        return owners, refused

    async def _unloads(self, owners: Mapping[str, str], *, override_cool_down: bool) -> Unloads:
        request = await self._with_policies(owners)
        # In a thread: planning one bundle takes milliseconds if there are many brokers.
        unloads = await asyncio.to_thread(unload_all, request, owners, override_cool_down=override_cool_down)
        return replace(unloads, refused=tuple(map(self._left_alone().explain, unloads.refused)))


@dataclass(slots=True, kw_only=True, eq=False)
class UnloadTask:
    """An unload of many bundles, executed by the leader of `epoch` over several cycles.

    `left`: the remaining bundles with the broker that each must leave. `waiting`: why bundles did not move after the
    last cycle. `before`: result of the split that created the bundles, as text; "": no split."""

    task: dict[str, Any]
    body: Mapping[str, Any]
    epoch: int
    left: dict[str, str]
    before: str = ""
    started: bool = False
    waiting: tuple[Refusal, ...] = ()

    def refuse(self, bundle: str, code: str) -> None:
        """Give up unloading a bundle, and add the refused move with `code` (the reason) to the task."""
        del self.left[bundle]
        self.task["moves"].append({"bundle": bundle, "outcome": "refused", "landed_on": "", "code": code})

    def end(self, code: str) -> None:
        """Give up unloading all remaining bundles, with `code` as the reason."""
        for bundle in list(self.left):
            self.refuse(bundle, code)

    @property
    def landed(self) -> int:
        """Number of bundles that have left their brokers."""
        return sum(
            row["outcome"] in ("done", "landed_elsewhere", "released") and row["code"] != Code.STILL_AT_SOURCE
            for row in self.task["moves"]
        )

    @property
    def progress(self) -> str:
        """Progress of the unload as text for operators."""
        return f"{self.before}{self.landed} of {len(self.task['moves']) + len(self.left)} left their brokers"

    @property
    def waits(self) -> str:
        """Reasons why the remaining bundles wait, as text for operators."""
        details = {item.code: f"{item.code} ({item.detail})" if item.detail else item.code for item in self.waiting}
        return f"; {len(self.left)} wait: {', '.join(details.values())}"
