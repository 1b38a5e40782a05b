"""`assign()`: the broker to which Pulsar would assign a bundle without an owner, and the steps that lead to it. Pure.

The steps are those of the brokers' load manager: `ModularLoadManagerImpl.selectBroker`, or the `BrokerFilter`s of
`ExtensibleLoadManagerImpl.selectAsync` (PIP-192). The extensible load manager uses another order, does not distribute
namespaces evenly, and never adds dropped brokers again: if no broker is left, the bundle gets no owner.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from bundlekeel.model.codes import EXPLANATIONS, Code
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.load import Ints
from bundlekeel.model.names import namespace_of
from bundlekeel.model.parameter_table import PLACEMENTS
from bundlekeel.model.policies import Policies
from bundlekeel.model.response_fields import Broker, Bundle, Explanation
from bundlekeel.model.snapshot import Bools
from bundlekeel.planning.draft import Draft
from bundlekeel.planning.filters.isolation import (
    FREE,
    AppliedIsolation,
    domain_numbers,
    group_numbers,
    isolate,
    least_of_group,
    lives_on,
)
from bundlekeel.planning.filters.versions import version_key
from bundlekeel.planning.ledger import Ledger

SYSTEM_NAMESPACE = "pulsar/system"


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedBroker(Answer):
    """A broker that a step of the assignment dropped."""

    broker: Broker
    code: Annotated[Code, Doc("code of why the broker is not a candidate", grows=Code)]
    explanation: Explanation


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentStep(Answer):
    """One step of the assignment of a bundle to a broker."""

    name: Annotated[str, Doc("name of the step")]
    candidates: Annotated[tuple[str, ...], Doc("remaining brokers after the step")]
    dropped: Annotated[tuple[DroppedBroker, ...], Doc("dropped brokers with their codes")]
    note: Annotated[str, Doc("remark for operators, such as the name of the policy")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment(Answer):
    """Result of the assignment of one bundle."""

    bundle: Bundle
    preallocated: Annotated[str | None, Doc("broker that the bundle is in transit to; null: none")]
    chosen: Annotated[
        str | None,
        Doc("broker that would receive the bundle; null: any of the candidates (`round_robin`), or none (`code`)"),
    ]
    one_of: Annotated[
        tuple[str, ...],
        Doc("brokers, including `chosen`, from which Pulsar selects at random or in turn; empty: no choice"),
    ]
    placement: Annotated[str, Doc("placement of the brokers, which selects the target", grows=PLACEMENTS)]
    candidates: Annotated[tuple[str, ...], Doc("remaining brokers after the last step")]
    code: Annotated[
        Code | None, Doc("code of why no broker would receive the bundle; null: a broker would", grows=Code)
    ]
    steps: Annotated[tuple[AssignmentStep, ...], Doc("steps of the assignment, in order")]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentInput:
    """Input of an assignment in addition to the bundle.

    `draft`: predicted load. `ledger`: preallocated bundles, which are moving to another broker. `placement`: placement
    of modular brokers; extensible ones have only one. `in_turn`: namespaces for which brokers use round robin instead
    of the placement (loadBalancerSheddingExcludedNamespaces).
    """

    draft: Draft
    ledger: Ledger = field(default_factory=Ledger)
    policies: Policies = field(default_factory=Policies)
    placement: str = "least_resource_usage"
    in_turn: frozenset[str] = frozenset()


def assign(request: AssignmentInput, bundle: str, *, non_persistent: bool = False) -> Assignment:
    """Assign one bundle as if it had no owner.

    `non_persistent`: assume a lookup of a non-persistent topic; only brokers know the type of the topic.
    """
    run = _Run(request, bundle, non_persistent)
    going = next(
        (entry.target for entry in request.ledger.entries if entry.bundle == bundle and not entry.landed_ms), ""
    )
    run.filter_all()
    broker, code = run.choose()
    if run.fault is not None:
        broker, code = "", run.fault
    elif going:
        broker, code = going, None
    return Assignment(
        bundle=bundle,
        steps=tuple(run.steps),
        placement=run.placement,
        chosen=broker or None,
        preallocated=going or None,
        code=code,
        candidates=run.names(run.left) if run.fault is None else (),
        one_of=run.one_of() if code is None and not going else (),
    )


class _Run:
    """The steps of one assignment.

    `left`: present candidates. `policy`: candidates after the policy step, with which the pipeline continues if later
    steps drop all.
    """

    def __init__(self, request: AssignmentInput, bundle: str, non_persistent: bool) -> None:
        self.request, self.bundle, self.non_persistent = request, bundle, non_persistent
        self.draft, self.snapshot, self.policies = request.draft, request.draft.snapshot, request.policies
        self.ids, self.namespace = self.snapshot.brokers.ids, namespace_of(bundle)
        self.extensible = self.snapshot.mode == "extensible"
        # `createBrokerSelectionStrategy` ignores loadBalancerLoadPlacementStrategy and always creates this class.
        self.placement = "least_resource_usage" if self.extensible else request.placement
        self.in_turn = self.namespace in request.in_turn
        if self.in_turn:
            self.placement = "round_robin"
        self.left: Bools = np.ones(len(self.ids), dtype=bool)
        self.policy: Bools = self.left
        self.steps: list[AssignmentStep] = []
        self.fault: Code | None = None

    def names(self, mask: Bools) -> tuple[str, ...]:
        return tuple(self.ids[row] for row in np.flatnonzero(mask).tolist())

    def filter_all(self) -> None:
        """Run every step before the placement."""
        self._available()
        if self.extensible:
            self._load_manager_class()
            self._max_topics()
            self._version()
            self._anti_affinity()
            self._policies()
            return
        self._policies()
        self.policy = self.left
        if self.fault is None:
            self._max_topics()
            self._anti_affinity()
            self._evenly()
            self._load_manager_class()
            self._version()
            if not self.left.any():
                self._refill("no candidate was left: all candidates of the policies again")

    # --- steps ---

    def _step(self, name: str, keep: Bools, code: Code | Callable[[int], Code], note: str = "") -> None:
        """Keep only the candidates in the mask `keep`. `code`: the reason for a dropped broker (row)."""
        dropped_rows = np.flatnonzero(self.left & ~keep).tolist()
        dropped = {self.ids[row]: code if isinstance(code, Code) else code(row) for row in dropped_rows}
        self.left = self.left & keep
        self._add(name, dropped, note)

    def _add(self, name: str, dropped: Mapping[str, Code], note: str = "") -> None:
        brokers = tuple(
            DroppedBroker(broker=broker, code=code, explanation=EXPLANATIONS[code]) for broker, code in dropped.items()
        )
        self.steps.append(AssignmentStep(name=name, candidates=self.names(self.left), dropped=brokers, note=note))

    def _available(self) -> None:
        codes = {code.value: code for code in Code}
        dropped = {item.broker_id: codes.get(item.code, Code.NO_LOAD_DATA) for item in self.snapshot.excluded}
        self._add("available", dropped)

    def _policies(self) -> None:
        """Apply isolation policies; without one for the namespace, the topic types that brokers serve.

        Pulsar: `applyNamespacePolicies`.
        """
        if self.policies.unknown or self.namespace in self.policies.unreadable:
            self.fault = Code.POLICY_UNREADABLE
            self._step("policies", np.zeros_like(self.left), self.fault, self.policies.unknown)
            return
        # A broker that earlier filters of the extensible pipeline have dropped is not an available primary any more.
        places = np.cumsum(self.left) - 1
        isolation = isolate(self.policies.isolation, (self.namespace,), self.names(self.left), self._without_report())
        keep = np.zeros_like(self.left)
        keep[self.left] = isolation.mask(0)
        if bool(isolation.unknown()[0]):
            self.fault = Code.POLICY_UNREADABLE
        note = self._policy_name(isolation)
        if int(isolation.policy[0]) != FREE:
            self._step("policies", keep, lambda row: isolation.code(0, int(places[row])), note)
            return
        brokers = self.snapshot.brokers
        serves = brokers.takes_non_persistent() if self.non_persistent else brokers.takes_persistent()
        refused = Code.NON_PERSISTENT_DISABLED if self.non_persistent else Code.PERSISTENT_DISABLED
        self._step(
            "policies", keep & serves, lambda row: isolation.code(0, int(places[row])) if serves[row] else refused, note
        )

    def _without_report(self) -> tuple[str, ...]:
        """Return live brokers without a usable report: not candidates, but available primary brokers for Pulsar.

        The extensible pipeline has already dropped brokers with another load manager.
        """
        dropped_before = Code.MIXED_LOAD_MANAGERS if self.extensible else None
        return tuple(item.broker_id for item in self.snapshot.excluded if item.code != dropped_before)

    def _policy_name(self, isolation: AppliedIsolation) -> str:
        number = int(isolation.policy[0])
        return f"isolation policy {self.policies.isolation[number].name}" if number >= 0 else ""

    def _max_topics(self) -> None:
        room = self.draft.has_room()
        if not self.extensible and not (self.left & room).any():
            limit = self.draft.params.max_topics_per_broker
            self._step("max topics", self.left, Code.MAX_TOPICS, f"all have more than {limit}: none is dropped")
            return
        self._step("max topics", room, Code.MAX_TOPICS)

    def _anti_affinity(self) -> None:
        """Keep the brokers with the fewest namespaces of the anti-affinity group; extensible: the fewest bundles of it.

        The bundle's own namespace counts.
        """
        names = self.snapshot.bundles.namespaces
        group = self.policies.anti_affinity.get(self.namespace, "")
        if not group or not self.left.any():
            self._step("anti-affinity", self.left, Code.MORE_OF_GROUP, "no group" if not group else "")
            return
        numbers = group_numbers(self.policies, (self.namespace, *names))
        members = numbers[1:] == numbers[0]
        if self.extensible:
            counts = self._bundles_of({self.namespace, *(names[row] for row in np.flatnonzero(members).tolist())})
        else:
            counts = lives_on(self.snapshot, self.request.ledger)[members].sum(axis=0)
        narrowed = least_of_group(counts, self.left, domain_numbers(self.policies, self.ids))
        if self.policies.failure_domains_enabled:
            self._step("failure domains", narrowed.domains, Code.FULLER_DOMAIN, f"group {group}")
        self._step("anti-affinity", narrowed.brokers, Code.MORE_OF_GROUP, f"group {group}")

    def _evenly(self) -> None:
        """Keep the brokers with the fewest bundles of this namespace, including bundles that move there."""
        spread = self.policies.distribute_evenly or self.namespace == SYSTEM_NAMESPACE
        if not spread or not self.left.any():
            self._step("distribute evenly", self.left, Code.MORE_OF_NAMESPACE, "" if spread else "off")
            return
        counts = self._bundles_of({self.namespace})
        least = int(counts[self.left].min())
        self._step("distribute evenly", counts <= least, Code.MORE_OF_NAMESPACE, f"at most {least} of its bundles")

    def _bundles_of(self, namespaces: Set[str]) -> Ints:
        """Return the number of other bundles of these namespaces on each broker.

        Modular brokers count reported bundles and bundles in transit to them. Extensible brokers count the channel's
        entries in state Owned.
        """
        bundles, index = self.snapshot.bundles, {broker: row for row, broker in enumerate(self.ids)}
        numbers = [number for number, name in enumerate(bundles.namespaces) if name in namespaces]
        moving = self.request.ledger.bundles() if self.extensible else frozenset[str]()
        names_by_broker: list[set[str]] = [set() for _ in self.ids]
        for row in np.flatnonzero(np.isin(bundles.namespace, numbers)).tolist():
            if bundles.names[row] not in moving:
                names_by_broker[int(bundles.owner[row])].add(bundles.names[row])
        for entry in self.request.ledger.entries:
            there = entry.target in index and bool(entry.landed_ms or not self.extensible)
            if there and namespace_of(entry.bundle) in namespaces:
                names_by_broker[index[entry.target]].add(entry.bundle)
        return np.array([len(names - {self.bundle}) for names in names_by_broker], dtype=np.int64)

    def _load_manager_class(self) -> None:
        expected = self.policies.load_manager
        same = np.array([not expected or name == expected for name in self.snapshot.brokers.load_managers], dtype=bool)
        self._step("load manager class", same, Code.OTHER_LOAD_MANAGER)

    def _version(self) -> None:
        """Keep the brokers with the latest version, if `preferLaterVersions` is on.

        If a version cannot be read, the extensible load manager keeps all present candidates. The modular load manager
        starts again from all brokers that the policies allow.
        """
        brokers = self.snapshot.brokers
        if not self.policies.prefer_later_versions or not self.left.any():
            note = "" if self.policies.prefer_later_versions else "off"
            self._step("version", self.left, Code.OLDER_VERSION, note)
            return
        keys = {row: version_key(brokers.versions[row]) for row in np.flatnonzero(self.left).tolist()}
        readable = [key for key in keys.values() if key is not None]
        if len(readable) < len(keys):
            if self.extensible:
                self._step("version", self.left, Code.OLDER_VERSION, "a version could not be read: none is dropped")
            else:
                self._refill("a version could not be read: all candidates of the policies again")
            return
        latest = max(readable)
        keep = np.array([keys.get(row) == latest for row in range(len(self.ids))], dtype=bool)
        self._step("version", keep, Code.OLDER_VERSION)

    def _refill(self, note: str) -> None:
        self.left = self.policy
        self._add("refill", {}, note)

    # --- the choice ---

    def choose(self) -> tuple[str, Code | None]:
        """Return the choice of the placement, or "" with the code of the reason.

        If the chosen broker is overloaded, a modular broker chooses once more among all candidates of the policies.
        """
        if not self.left.any():
            return "", Code.NO_LEGAL_TARGET
        best = self._best()
        limit = self.draft.params.overloaded_threshold_percent / 100
        if not self.extensible and float(self.draft.score[best]) > limit:
            note = f"{self.ids[best]} is above {limit:.0%}: once more among all candidates of the policies"
            self.left = self.left | self.policy
            self._add("overload recheck", {}, note)
            best = self._best()
        many = self.in_turn and np.count_nonzero(self.left) > 1
        return "" if many else self.ids[best], None

    def one_of(self) -> tuple[str, ...]:
        """Return the brokers from which Pulsar draws at random, in id order; empty if there is only one."""
        draft, rows, params = self.draft, np.flatnonzero(self.left), self.draft.params
        score = draft.score[rows]
        if self.placement == "least_long_term_message_rate":
            over = score > params.overloaded_threshold_percent / 100
            rates = np.where(over, np.inf, draft.long_rate()[rows])
            rows = rows[rates == rates.min()]
        elif self.placement == "least_resource_usage":
            below = score + params.average_usage_difference_percent / 100 <= score.mean()
            rows = rows[below] if below.any() else rows
        return tuple(self.ids[row] for row in rows.tolist()) if len(rows) > 1 else ()

    def _best(self) -> int:
        """Return the first choice of the placement. The bundle's load is unknown and counts as 0.

        If brokers place in turn, this is the most loaded candidate, so that the check for overload covers all.
        """
        draft, rows = self.draft, np.flatnonzero(self.left)
        if self.in_turn:
            return int(rows[np.argmax(draft.score[rows])])
        if self.placement == "round_robin":
            return int(rows[int(np.searchsorted(rows, draft.turn)) % len(rows)])
        if self.placement == "avg":
            return int(rows[zlib.crc32(self.bundle.encode()) % len(rows)])
        if self.placement == "least_long_term_message_rate":
            over = draft.score[rows] > draft.params.overloaded_threshold_percent / 100
            return int(rows[np.lexsort((draft.long_rate()[rows], over))[0]])
        return int(rows[np.argmin(draft.score[rows])])
