"""What the API and the CLI may ask of a sidecar beside looking: brokers drained, bundles moved by hand, pins, reviews.

Every replica answers alike: requests are written with compare-and-set by whichever is asked, moves are left for the
leader. Raises NotFound, Conflict, Forbidden, ConfigError, StoreError, SnapshotError of `core.model.errors`; nothing
else.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

from bundlekeel.core.splitting.algorithms import BY_LOAD, SplitOptions

Json = dict[str, Any]
Verb = Literal["transfer", "unload", "split"]


class OperationsService(Protocol):
    """What people ask of brokers and bundles. Every mutation names `by` and `reason`, which the journal keeps."""

    def operations(self) -> Json:
        """{drains: [{broker, by, reason, since_ms, state: draining|empty|blocked|unknown, left: int|None, moved,
        blocked: {code: count}, eta_seconds: float|None while it is unknown or blocked, emptied_ms, bundle_seconds,
        detail}], cordons: [{broker, by, reason, since_ms}], warms: as cordons, pins: [{bundle, until_ms}], exclusions:
        [{pattern, until_ms}], pauses: [{scope, by, reason, since_ms, until_ms}]}"""

    async def drain(self, broker: str, *, dry_run: bool, reason: str, by: str) -> Json:
        """Empty a broker and keep it empty until `uncordon`: {broker, dry_run, bundles: what it owns, moves: [Move
        fields + sentence], refusals: [..], refusal_counts, eta_seconds: what the moves take one after the other,
        sentence, detail}. Without `dry_run` the request is written."""

    async def cordon(self, broker: str, *, reason: str, by: str) -> Json:
        """Let nothing come to a broker by us: {broker, state: cordoned}; Conflict for the last one open to bundles."""

    async def uncordon(self, broker: str, *, reason: str, by: str) -> Json:
        """End cordon, drain and warm of a broker: {broker, ended: [..]}; NotFound when there is none."""

    async def warm(self, broker: str, *, dry_run: bool, reason: str, by: str) -> Json:
        """Fill a broker gently until it carries its share; answers as `drain`."""

    async def pin(self, bundle: str, *, seconds: float | None, reason: str, by: str) -> Json:
        """Keep a bundle (or a topic's bundle) where it is: {bundle, broker, until_ms (0: for good)}"""

    async def unpin(self, bundle: str, *, reason: str, by: str) -> Json:
        """End a pin; NotFound when there is none."""

    async def exclude(self, pattern: str, *, seconds: float | None, reason: str, by: str) -> Json:
        """Leave tenants, namespaces, bundles or brokers alone: {pattern, until_ms (0: for good), bundles: how many
        known ones it matches, int|None}. ConfigError for a malformed pattern or an unknown broker."""

    async def include(self, pattern: str, *, reason: str, by: str) -> Json:
        """End an exclusion; NotFound when there is none."""

    async def pause_scope(self, scope: str, *, seconds: float | None, reason: str, by: str) -> Json:
        """Move nothing of one scope (`tenant:..`, `namespace:..`, `broker:..`): {scope, reason, by, since_ms, until_ms:
        int|None (until resumed), bundles: how many known ones it matches, int|None}. ConfigError as `exclude`."""

    async def resume_scope(self, scope: str, *, reason: str, by: str) -> Json:
        """End the pause of one scope; NotFound when there is none."""

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
        """Move or split one bundle. Dry unless `execute`: {kind, name, bundle, source, target, move: Move fields +
        sentence|None, candidates: [{broker, score_before, score_after, code, explanation}], children: [..] (split),
        refusals, loads, sentence, hash, dry_run, task, state, review}. Conflict when it is to be carried out and
        something refuses. `options`: of a split, whose `name` may be TENANT/NAMESPACE/LARGEST. `override_cool_down`:
        although it moved lately, also straight back; what else of the guard binds a person says
        core/operations/manual_moves.py."""

    async def unload_namespace(
        self,
        namespace: str,
        *,
        override_cool_down: bool = False,
        execute: bool = False,
        reason: str = "",
        by: str = "",
    ) -> Json:
        """Each bundle of a namespace off its broker, cycle by cycle within the budgets of the guard. Dry unless
        `execute`: {kind, namespace, bundles, moves: [Move fields + sentence], refusals, refusal_counts, eta_seconds:
        float|None, sentence, hash, dry_run, task, state, review}. Conflict when all are to stay."""

    async def task(self, task: str) -> Json:
        """One task as in `tasks`, or, while the leader has not taken it, its request (state `waiting`); NotFound."""

    async def stop(self, task: str, *, reason: str, by: str) -> Json:
        """Begin no further move of a task; those under way end: {task, state}"""

    async def reviews(self) -> list[Json]:
        """[{id, kind, title, by, reason, at_ms, state: proposed|approved|executing|done|aborted|discarded|expired,
        reviewer, remark, decided_ms, task, actions: [..]}], oldest first."""

    async def approve(self, id_: str, *, reason: str, by: str) -> Json:
        """Let a proposal be carried out; Forbidden for whoever proposed it. One that is approved without a task,
        because the store failed, may be approved again."""

    async def discard(self, id_: str, *, reason: str, by: str) -> Json:
        """Say no to a proposal."""
