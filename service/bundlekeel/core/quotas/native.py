"""Enforcer `native`: Pulsar's ResourceGroups kept as declared, and the defects of theirs that bite. Pure.

A ResourceGroup of the group's name is attached to each of its namespaces. What was there before is in `Kept`, stored
before the first write, and given back when the group goes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bundlekeel.core.codes import Code
from bundlekeel.core.load import Floats
from bundlekeel.core.quotas.groups import DISPATCH_BYTES, DISPATCH_MESSAGES, PUBLISH_MESSAGES, Group, Membership

# A broker with the least quota there is passes about this many messages/s.
_STARVED = 1.5
# Groups that pass less than this part of their limit are not held back by it.
_FULL = 0.5


class ResourceGroup(NamedTuple):
    """A ResourceGroup: rates a second over all brokers; -1 is no limit."""

    publish_messages: int = -1
    publish_bytes: int = -1
    dispatch_messages: int = -1
    dispatch_bytes: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A ResourceGroup we keep. `original`: the one of this name before us, None without one. `attached`: what each
    namespace was attached to before us, "" for nothing."""

    original: ResourceGroup | None = None
    attached: Mapping[str, str] = field(default_factory=dict)


class Put(NamedTuple):
    """One write. `namespace` "": the ResourceGroup `name` itself becomes `group` (None: removed). Else the namespace is
    attached to `name` ("": detached)."""

    name: str
    group: ResourceGroup | None = None
    namespace: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NativePlan:
    """`puts` in their order; `kept` is to be stored before them, `done` are the names to forget after them."""

    puts: tuple[Put, ...] = ()
    kept: Mapping[str, Kept] = field(default_factory=dict)
    done: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """One thing that Pulsar does to a group which its limit does not ask for."""

    code: Code
    group: str
    detail: str = ""


def resource_group_of(group: Group) -> ResourceGroup:
    """What Pulsar is told of a group; bytes and messages are cut to whole numbers."""
    limits = group.limits
    given = (limits.publish_messages, limits.publish_bytes, limits.dispatch_messages, limits.dispatch_bytes)
    return ResourceGroup(*(-1 if value is None else int(value) for value in given))


def plan_native(
    membership: Membership,
    groups: Mapping[str, ResourceGroup | None],
    attached: Mapping[str, str],
    kept: Mapping[str, Kept],
) -> NativePlan:
    """What to write. `groups`: the ResourceGroups there are, by the names of declared and of kept ones; `attached`:
    what each namespace is attached to, by all namespaces that belong to a group or once did. What is in neither was
    not read, and is left alone."""
    puts: list[Put] = []
    memory = dict(kept)
    declared = {group.name: group for group in membership.groups}
    members: dict[str, list[str]] = {name: [] for name in declared}
    for namespace, row in sorted(membership.group_of.items()):
        members[membership.groups[row].name].append(namespace)
    for name, group in declared.items():
        if name not in groups:
            continue
        wanted = resource_group_of(group)
        before = memory.get(name, Kept(original=groups[name]))
        if groups[name] != wanted:
            puts.append(Put(name, wanted))
        joining = {item: attached[item] for item in members[name] if item in attached}
        memory[name] = Kept(original=before.original, attached={**joining, **before.attached})
        puts += [Put(name, namespace=item) for item, now in joining.items() if now != name]
    done: list[str] = []
    for name, held in sorted(kept.items()):
        leaving = [item for item in held.attached if item not in members.get(name, ())]
        read = [item for item in leaving if item in attached]
        back = [Put(held.attached[item], namespace=item) for item in read if attached[item] == name]
        if name in declared:
            puts += back
            left = {item: was for item, was in memory[name].attached.items() if item not in read}
            memory[name] = Kept(original=memory[name].original, attached=left)
        elif name in groups and len(read) == len(leaving):
            puts += back
            puts += [Put(name, held.original)] if groups[name] not in (None, held.original) else []
            done.append(name)
    return NativePlan(puts=tuple(puts), kept=memory, done=tuple(done))


def defects(
    group: Group, usage: Floats, brokers: Collection[str], gone: Collection[str], *, exchanged: bool
) -> tuple[Defect, ...]:
    """What is known to go wrong with this group now. `usage`: by broker in the order of `brokers`, columns `KINDS`;
    `gone`: brokers that served it and are not there any more while no other one restarted; `exchanged`: whether brokers
    tell each other their usage."""
    found: list[Defect] = []
    limit = group.limits.publish_messages
    if not exchanged and len(brokers) > 1:
        found.append(Defect(code=Code.USAGE_NOT_EXCHANGED, group=group.name, detail=f"{len(brokers)} brokers"))
    if group.limits.dispatch_messages is not None or group.limits.dispatch_bytes is not None:
        passes = float(usage[:, DISPATCH_MESSAGES].sum()), float(usage[:, DISPATCH_BYTES].sum())
        detail = f"{passes[0]:.0f} messages/s and {passes[1]:.0f} bytes/s are delivered"
        found.append(Defect(code=Code.DISPATCH_NOT_ENFORCED, group=group.name, detail=detail))
    if exchanged and gone:
        found.append(Defect(code=Code.DEAD_BROKER_COUNTED, group=group.name, detail=", ".join(sorted(gone))))
    if exchanged and limit is not None and usage[:, PUBLISH_MESSAGES].sum() >= _FULL * limit:
        column = usage[:, PUBLISH_MESSAGES].tolist()
        poor = [name for name, rate in zip(brokers, column, strict=True) if 0 < rate <= _STARVED]
        if poor and limit > len(poor) * _STARVED * 2:
            found.append(Defect(code=Code.STARVED_AFTER_MOVE, group=group.name, detail=", ".join(sorted(poor))))
    return tuple(found)
