"""Enforcer `native`: keeps Pulsar's ResourceGroups as declared, and reports their known defects. Pure.

A ResourceGroup of the group's name is attached to each of its namespaces. What was there before is in
`OwnedResourceGroup`, stored before the first write, and given back when the group goes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.load import Floats
from bundlekeel.core.quotas.groups import (
    DISPATCH_BYTES,
    DISPATCH_MESSAGES,
    PUBLISH_BYTES,
    PUBLISH_MESSAGES,
    Membership,
    QuotaGroup,
)

# A broker with the least quota there is passes about this many messages/s or bytes/s.
_STARVED = 1.5
# Or, when bytes are limited, a message now and then, whatever its size: less than this part of what an even share is.
_SCRAP = 0.01
# Groups that pass less than this part of their limit are not held back by it.
_FULL = 0.5


class ResourceGroup(NamedTuple):
    """A ResourceGroup: rates a second over all brokers; -1 is no limit."""

    publish_messages: int = -1
    publish_bytes: int = -1
    dispatch_messages: int = -1
    dispatch_bytes: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBrokers:
    """Who serves a group. `brokers`: those there now that ever did; `newest`: the newest start of a broker, in ms;
    `gone`: those that did and are not there any more, each with `newest` of the time before it went."""

    brokers: tuple[str, ...] = ()
    newest: int = 0
    gone: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedResourceGroup:
    """A ResourceGroup we keep. `original`: the one of this name before us, None without one. `attached`: what each
    namespace was attached to before us, "" for nothing. `serving`: who serves it, for the next leader."""

    original: ResourceGroup | None = None
    attached: Mapping[str, str] = field(default_factory=dict)
    serving: GroupBrokers = field(default_factory=GroupBrokers)


class ResourceGroupWrite(NamedTuple):
    """One write. `namespace` "": the ResourceGroup `name`, which is `before` (None: there is none), becomes `group`
    (None: is removed). Else the namespace, which is attached to `leaves`, is attached to `name` ("": to nothing)."""

    name: str
    group: ResourceGroup | None = None
    namespace: str = ""
    before: ResourceGroup | None = None
    leaves: str = ""

    @property
    def what(self) -> str:
        """What is written: a namespace (these have a slash) or a ResourceGroup (these have none)."""
        return self.namespace or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class NativePlan:
    """`sets` make and change ResourceGroups, `moves` attach namespaces, `ends` give ResourceGroups back. A move needs
    that its ResourceGroup is there, an end that all have left. `kept` is to be stored before them, `done` are the names
    to forget when all that concerns them is written."""

    sets: tuple[ResourceGroupWrite, ...] = ()
    moves: tuple[ResourceGroupWrite, ...] = ()
    ends: tuple[ResourceGroupWrite, ...] = ()
    kept: Mapping[str, OwnedResourceGroup] = field(default_factory=dict)
    done: tuple[str, ...] = ()

    @property
    def puts(self) -> tuple[ResourceGroupWrite, ...]:
        """All of them, in their order."""
        return (*self.sets, *self.moves, *self.ends)

    def chosen(self, most: int, tried: Mapping[str, int]) -> frozenset[ResourceGroupWrite]:
        """So many puts at most: those tried the longest ago, but none without what it needs. `tried`: by what is
        written, the number of the plan; one that always fails cannot starve the others."""
        never = -1
        needs = {put.name: tried.get(put.what, never) for put in self.sets if put.before is None}
        turn = {put: max(tried.get(put.what, never), needs.get(put.name, never)) for put in (*self.sets, *self.moves)}
        leaving: dict[str, int] = {}
        for put in self.moves:
            leaving[put.leaves] = max(leaving.get(put.leaves, never), turn[put])
        turn |= {put: max(tried.get(put.what, never), leaving.get(put.name, never)) for put in self.ends}
        # The sort keeps the order of those tried at the same time, so what is needed comes first.
        return frozenset(sorted(self.puts, key=lambda put: turn[put])[:most])


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """One thing that Pulsar does to a group which its limit does not ask for."""

    code: Code
    group: str
    detail: str = ""


def resource_group_of(group: QuotaGroup) -> ResourceGroup:
    """What Pulsar is told of a group; bytes and messages are cut to whole numbers."""
    limits = group.limits
    given = (limits.publish_messages, limits.publish_bytes, limits.dispatch_messages, limits.dispatch_bytes)
    return ResourceGroup(*(-1 if value is None else int(value) for value in given))


def plan_native(
    membership: Membership,
    groups: Mapping[str, ResourceGroup | None],
    attached: Mapping[str, str],
    kept: Mapping[str, OwnedResourceGroup],
    absent: Collection[str] = (),
) -> NativePlan:
    """What to write. `groups`: the ResourceGroups there are, by the names of declared and of kept ones, and of those
    that namespaces may go back to; `attached`: what each namespace is attached to, by all namespaces that belong to a
    group or once did; `absent`: those that are not there any more. What is in none of them was not read, and is left
    alone."""
    made = _Made(membership, groups, attached, kept, absent)
    for group in membership.groups:
        if group.name in groups:
            made.keep(group)
    for name in sorted(kept):
        made.release(name)
    done = tuple(made.done)
    return NativePlan(
        sets=tuple(made.sets), moves=tuple(made.moves), ends=tuple(made.ends), kept=made.memory, done=done
    )


class _Made:
    """A plan in the making."""

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
        """A declared group, whose ResourceGroup was read: it and its members."""
        name, wanted, now = group.name, resource_group_of(group), self._groups[group.name]
        if now != wanted:
            self.sets.append(ResourceGroupWrite(name, wanted, before=now))
        before = self.memory.get(name, OwnedResourceGroup(original=now))
        joining = {item: self._attached[item] for item in self._members[name] if item in self._attached}
        original = {item: self._before_us(item, there) for item, there in joining.items()}
        self.memory[name] = replace(before, attached={**original, **before.attached})
        self.moves += [
            ResourceGroupWrite(name, namespace=item, leaves=there) for item, there in joining.items() if there != name
        ]

    def release(self, name: str) -> None:
        """A kept ResourceGroup: namespaces that left it, and, when no group declares it any more, itself."""
        held, attached = self._kept[name], self._attached
        leaving = [item for item in held.attached if self._taken.get(item) != name]
        still = [item for item in leaving if attached.get(item) == name]
        for item in still:
            target = self._goes_to(item, held.attached[item])
            # What another group takes goes there at once: in between it would have no limit.
            if item not in self._taken and target != name:
                self.moves.append(ResourceGroupWrite(target, namespace=item, leaves=name))
        # Others attached it elsewhere since, or we did: that is over. What is to go is kept until it has gone.
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
        if now not in (None, held.original):
            self.ends.append(ResourceGroupWrite(name, held.original, before=now))
        self.done.append(name)

    def _before_us(self, namespace: str, there: str) -> str:
        """What a namespace was attached to before us, which is `there` unless that is ours."""
        seen: set[str] = set()
        while there not in seen and there in self._kept and namespace in self._kept[there].attached:
            seen.add(there)
            there = self._kept[there].attached[namespace]
        return there

    def _goes_to(self, namespace: str, was: str) -> str:
        """Where a namespace is to go; to nothing when what it was attached to is not there any more, or goes too."""
        was = self._before_us(namespace, was)
        if was in self._declared:
            return was
        if was in self._kept:
            return was if self._kept[was].original is not None else ""
        return was if self._groups.get(was, ResourceGroup()) is not None else ""


def serving_after(before: GroupBrokers, serving: Collection[str], starts: Mapping[str, int]) -> GroupBrokers:
    """Who serves a group by now. `serving`: brokers it passes something at; `starts`: when each broker there started,
    in ms. Each broker counts what a dead one said last until it restarts itself, or the dead one is back."""
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
    """What is known to go wrong with this group now. `usage`: by broker in the order of `brokers`, columns `KINDS`;
    `gone`: brokers that are not there any more and whose last word still counts; `exchanged`: whether brokers
    tell each other their usage."""
    found: list[Defect] = []
    if not exchanged and len(brokers) > 1:
        found.append(Defect(code=Code.USAGE_NOT_EXCHANGED, group=group.name, detail=f"{len(brokers)} brokers"))
    if group.limits.dispatch_messages is not None or group.limits.dispatch_bytes is not None:
        passes = float(usage[:, DISPATCH_MESSAGES].sum()), float(usage[:, DISPATCH_BYTES].sum())
        detail = f"{passes[0]:.0f} messages/s and {passes[1]:.0f} bytes/s are delivered"
        found.append(Defect(code=Code.DISPATCH_NOT_ENFORCED, group=group.name, detail=detail))
    if exchanged and gone:
        found.append(Defect(code=Code.DEAD_BROKER_COUNTED, group=group.name, detail=", ".join(sorted(gone))))
    poor = sorted(_starved(group, usage, brokers)) if exchanged else []
    if poor:
        found.append(Defect(code=Code.STARVED_AFTER_MOVE, group=group.name, detail=", ".join(poor)))
    return tuple(found)


def _starved(group: QuotaGroup, usage: Floats, brokers: Collection[str]) -> set[str]:
    """Brokers that pass next to nothing of a group that is at a limit on publishing."""
    found: set[str] = set()
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
            found |= poor
    return found
