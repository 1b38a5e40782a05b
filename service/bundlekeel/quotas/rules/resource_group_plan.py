"""Plans the writes of the enforcer `native`, which uses Pulsar's ResourceGroups, and finds their known defects. Pure.

Each namespace of a quota group is attached to a ResourceGroup with the group's name. `OwnedResourceGroup` stores the
state before the first write, which is restored when the quota group is removed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from bundlekeel.model.codes import Code
from bundlekeel.model.load import Floats
from bundlekeel.quotas.rules.groups import (
    DISPATCH_BYTES,
    DISPATCH_MESSAGES,
    PUBLISH_BYTES,
    PUBLISH_MESSAGES,
    Membership,
    QuotaGroup,
)

# Messages/s or bytes/s of a group up to which a broker counts as starved: about the smallest possible quota.
_STARVED = 1.5
# With a limit of bytes, a starved broker still passes single messages: less than this part of an even share.
_SCRAP = 0.01
# A group with a throughput below this part of its limit is not held back by the limit.
_FULL = 0.5


class ResourceGroup(NamedTuple):
    """A ResourceGroup: rates per second over all brokers; -1: no limit."""

    publish_messages: int = -1
    publish_bytes: int = -1
    dispatch_messages: int = -1
    dispatch_bytes: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBrokers:
    """Brokers that serve the topics of a quota group.

    `brokers`: running brokers that serve the group now or did before. `newest`: the latest start time of a running
    broker, Unix ms. `gone`: brokers that served the group and stopped, each with the value of `newest` at that time.
    """

    brokers: tuple[str, ...] = ()
    newest: int = 0
    gone: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedResourceGroup:
    """A ResourceGroup that Bundlekeel manages.

    `original`: the ResourceGroup of this name before Bundlekeel; None: it did not exist. `attached`: the ResourceGroup
    that each namespace was attached to before; "": it was not attached. `serving`: brokers that serve the group, for
    the next leader.
    """

    original: ResourceGroup | None = None
    attached: Mapping[str, str] = field(default_factory=dict)
    serving: GroupBrokers = field(default_factory=GroupBrokers)


class ResourceGroupWrite(NamedTuple):
    """One write of a ResourceGroup or of a namespace's attachment.

    If `namespace` is "", the ResourceGroup `name` changes from `before` (None: absent) to `group` (None: delete it).
    Otherwise the namespace is detached from the ResourceGroup `leaves` and attached to `name` ("": to none).
    """

    name: str
    group: ResourceGroup | None = None
    namespace: str = ""
    before: ResourceGroup | None = None
    leaves: str = ""

    @property
    def what(self) -> str:
        """Name of the written object: a namespace (contains a slash) or a ResourceGroup (contains no slash)."""
        return self.namespace or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class NativePlan:
    """Writes of ResourceGroups in one cycle.

    `sets`: writes that create or change ResourceGroups. `moves`: writes that attach namespaces, possible only if their
    ResourceGroup exists. `ends`: writes that restore or delete ResourceGroups, possible only after all namespaces have
    left them. `kept`: the groups that Bundlekeel manages; store them before the writes. `done`: names to drop from
    `kept` after all of their writes succeeded.
    """

    sets: tuple[ResourceGroupWrite, ...] = ()
    moves: tuple[ResourceGroupWrite, ...] = ()
    ends: tuple[ResourceGroupWrite, ...] = ()
    kept: Mapping[str, OwnedResourceGroup] = field(default_factory=dict)
    done: tuple[str, ...] = ()

    @property
    def puts(self) -> tuple[ResourceGroupWrite, ...]:
        """All writes in their order: sets, moves, ends."""
        return (*self.sets, *self.moves, *self.ends)

    def chosen(self, most: int, tried: Mapping[str, int]) -> frozenset[ResourceGroupWrite]:
        """Return at most `most` writes, those tried the longest ago first, so that failing writes do not block others.

        Includes a write only together with the write that must come before it. `tried`: number of the plan that last
        wrote each object, by the object's name.
        """
        never = -1
        needs = {put.name: tried.get(put.what, never) for put in self.sets if put.before is None}
        turn = {put: max(tried.get(put.what, never), needs.get(put.name, never)) for put in (*self.sets, *self.moves)}
        leaving: dict[str, int] = {}
        for put in self.moves:
            leaving[put.leaves] = max(leaving.get(put.leaves, never), turn[put])
        turn |= {put: max(tried.get(put.what, never), leaving.get(put.name, never)) for put in self.ends}
        # The sort is stable, so of writes that were tried at the same time, the one that must come before stays first.
        return frozenset(sorted(self.puts, key=lambda put: turn[put])[:most])


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """A known defect of Pulsar's ResourceGroups, because of which a group's limit does not hold now."""

    code: Code
    group: str
    detail: str = ""


def resource_group_of(group: QuotaGroup) -> ResourceGroup:
    """Return the ResourceGroup with the limits of a quota group, rounded down to integers."""
    limits = group.limits
    limits_of_kinds = (limits.publish_messages, limits.publish_bytes, limits.dispatch_messages, limits.dispatch_bytes)
    return ResourceGroup(*(-1 if value is None else int(value) for value in limits_of_kinds))


def plan_native(
    membership: Membership,
    groups: Mapping[str, ResourceGroup | None],
    attached: Mapping[str, str],
    kept: Mapping[str, OwnedResourceGroup],
    absent: Collection[str] = (),
) -> NativePlan:
    """Plan the writes of one cycle that make ResourceGroups as the quota groups declare.

    `groups`: ResourceGroups that were read, by name; None: the group does not exist. They include declared groups,
    groups in `kept`, and groups to which namespaces can return. `attached`: the current ResourceGroup of each namespace
    that belongs or belonged to a group. `absent`: namespaces that do not exist any more. A ResourceGroup or namespace
    that these arguments omit was not read, and is not changed.
    """
    draft = _Draft(membership, groups, attached, kept, absent)
    for group in membership.groups:
        if group.name in groups:
            draft.keep(group)
    for name in sorted(kept):
        draft.release(name)
    done = tuple(draft.done)
    return NativePlan(
        sets=tuple(draft.sets), moves=tuple(draft.moves), ends=tuple(draft.ends), kept=draft.memory, done=done
    )


class _Draft:
    def __init__(
        self,
        membership: Membership,
        groups: Mapping[str, ResourceGroup | None],
        attached: Mapping[str, str],
        kept: Mapping[str, OwnedResourceGroup],
        absent: Collection[str],
    ) -> None:
        self._groups, self._attached, self._kept, self._absent = groups, attached, kept, frozenset(absent)
        names = [group.name for group in membership.groups]
        self._declared = set(names)
        self._taken = {namespace: names[row] for namespace, row in sorted(membership.group_of.items())}
        self._members: dict[str, list[str]] = {name: [] for name in names}
        for namespace, name in self._taken.items():
            self._members[name].append(namespace)
        self.sets: list[ResourceGroupWrite] = []
        self.moves: list[ResourceGroupWrite] = []
        self.ends: list[ResourceGroupWrite] = []
        self.memory = dict(kept)
        self.done: list[str] = []

    def keep(self, group: QuotaGroup) -> None:
        """Add the writes for a declared group whose ResourceGroup was read, and for its members."""
        name, target, now = group.name, resource_group_of(group), self._groups[group.name]
        if now != target:
            self.sets.append(ResourceGroupWrite(name, target, before=now))
        before = self.memory.get(name, OwnedResourceGroup(original=now))
        joining = {item: self._attached[item] for item in self._members[name] if item in self._attached}
        original = {item: self._before_us(item, there) for item, there in joining.items()}
        self.memory[name] = replace(before, attached={**original, **before.attached})
        self.moves += [
            ResourceGroupWrite(name, namespace=item, leaves=there) for item, there in joining.items() if there != name
        ]

    def release(self, name: str) -> None:
        """Add the writes for namespaces that left a quota group, and restore its ResourceGroup if it was removed."""
        record, attached = self._kept[name], self._attached
        leaving = [item for item in record.attached if self._taken.get(item) != name]
        still = [item for item in leaving if attached.get(item) == name]
        for item in still:
            target = self._goes_to(item, record.attached[item])
            # Skip a namespace that belongs to another quota group now: it moves there directly, always with a limit.
            if item not in self._taken and target != name:
                self.moves.append(ResourceGroupWrite(target, namespace=item, leaves=name))
        # Drop the record of namespaces that are attached elsewhere now. All others stay recorded until they have left.
        over = {item for item in leaving if item in attached and attached[item] != name}
        if name in self._declared:
            over |= self._absent.intersection(leaving)
        rest = {item: was for item, was in self.memory[name].attached.items() if item not in over}
        self.memory[name] = replace(self.memory[name], attached=rest)
        waits = any(item not in attached and item not in self._absent for item in leaving)
        waits = waits or any(self._taken.get(item, name) not in self._groups for item in still)
        if name in self._declared or name not in self._groups or waits:
            return
        now = self._groups[name]
        if now not in (None, record.original):
            self.ends.append(ResourceGroupWrite(name, record.original, before=now))
        self.done.append(name)

    def _before_us(self, namespace: str, there: str) -> str:
        """Return the ResourceGroup of a namespace before Bundlekeel. `there`: its current ResourceGroup."""
        visited: set[str] = set()
        while there not in visited and there in self._kept and namespace in self._kept[there].attached:
            visited.add(there)
            there = self._kept[there].attached[namespace]
        return there

    def _goes_to(self, namespace: str, was: str) -> str:
        """Return the ResourceGroup to which a namespace returns: `was`, or "" if `was` is or will be deleted."""
        was = self._before_us(namespace, was)
        if was in self._declared:
            return was
        if was in self._kept:
            return was if self._kept[was].original is not None else ""
        return was if self._groups.get(was, ResourceGroup()) is not None else ""


def serving_after(before: GroupBrokers, serving: Collection[str], starts: Mapping[str, int]) -> GroupBrokers:
    """Return the updated record of the brokers that serve a group.

    `serving`: brokers at which the group has throughput. `starts`: start time of each running broker, Unix ms. Running
    brokers still count the last report of a stopped broker, until they restart or the stopped broker is back. So a
    stopped broker stays in `gone` until then.
    """
    gone = dict(before.gone) | {name: before.newest for name in before.brokers if name not in starts}
    oldest = min(starts.values(), default=0)
    return GroupBrokers(
        brokers=tuple(sorted((set(before.brokers) | set(serving)) & set(starts))),
        newest=max(starts.values(), default=before.newest),
        gone={name: since for name, since in sorted(gone.items()) if name not in starts and oldest <= since},
    )


def defects(
    group: QuotaGroup, usage: Floats, brokers: Collection[str], gone: Collection[str], *, exchanged: bool
) -> tuple[Defect, ...]:
    """Return the known defects of Pulsar's ResourceGroups that affect this quota group now.

    `usage`: one row per broker in the order of `brokers`, columns `KINDS`. `gone`: stopped brokers whose last report
    other brokers still count. `exchanged`: whether brokers report their usage to each other.
    """
    defects_now: list[Defect] = []
    if not exchanged and len(brokers) > 1:
        defects_now.append(Defect(code=Code.USAGE_NOT_EXCHANGED, group=group.name, detail=f"{len(brokers)} brokers"))
    if group.limits.dispatch_messages is not None or group.limits.dispatch_bytes is not None:
        passes = float(usage[:, DISPATCH_MESSAGES].sum()), float(usage[:, DISPATCH_BYTES].sum())
        detail = f"{passes[0]:.0f} messages/s and {passes[1]:.0f} bytes/s are delivered"
        defects_now.append(Defect(code=Code.DISPATCH_NOT_ENFORCED, group=group.name, detail=detail))
    if exchanged and gone:
        defects_now.append(Defect(code=Code.DEAD_BROKER_COUNTED, group=group.name, detail=", ".join(sorted(gone))))
    poor = sorted(_starved(group, usage, brokers)) if exchanged else []
    if poor:
        defects_now.append(Defect(code=Code.STARVED_AFTER_MOVE, group=group.name, detail=", ".join(poor)))
    return tuple(defects_now)


def _starved(group: QuotaGroup, usage: Floats, brokers: Collection[str]) -> set[str]:
    """Return the brokers at which a group has almost no throughput although the group is at a publish limit."""
    starved: set[str] = set()
    messages = usage[:, PUBLISH_MESSAGES]
    for column, limit in (
        (PUBLISH_MESSAGES, group.limits.publish_messages),
        (PUBLISH_BYTES, group.limits.publish_bytes),
    ):
        rates = usage[:, column]
        if limit is None or rates.sum() < _FULL * limit:
            continue
        few = rates <= _STARVED
        if column == PUBLISH_BYTES:
            few |= (messages <= _STARVED) & (rates <= _SCRAP * limit / max(1, len(brokers)))
        poor = {name for name, low in zip(brokers, ((rates > 0) & few).tolist(), strict=True) if low}
        if limit > len(poor) * _STARVED * 2:
            starved |= poor
    return starved
