"""What `doctor` says of the ownership channel, and of documents under our root that cannot be read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from bundlekeel.codec.external_input import unreadable
from bundlekeel.codec.report import is_bundle
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import CodecError, StoreError
from bundlekeel.daemon.answers.picture import Check
from bundlekeel.daemon.execution.intents import INTENTS, decode_intent
from bundlekeel.daemon.execution.split_intents import SPLITS, decode_split
from bundlekeel.daemon.sources.channel_watch import VARIANTS, ChannelWatch
from bundlekeel.daemon.state.documents import AveragesPart, Desired, decode, decode_moves, decode_request, decode_state
from bundlekeel.daemon.state.owned_limits import HELD, NATIVE, OwnedLimits
from bundlekeel.daemon.state.shared_state import AVERAGES, DESIRED, MOVES, REQUESTS, STATE
from bundlekeel.daemon.state.takeover_record import TAKEOVER, decode_takeover
from bundlekeel.ports import Clock, Coordination, Document

_FIX: Final = (
    "it is left out, or read as the safe thing (paused, frozen); look who may write below our root, then delete that "
    "node (`desired`: `bundlekeel resume` writes it anew)"
)
_SINGLE: Final[Mapping[str, Callable[[Document], object]]] = {
    DESIRED: lambda found: decode(found.data, Desired, what=found.path, exact=True) if found.data else None,
    TAKEOVER: lambda found: decode_takeover(found.data),
}
_FOLDERS: Final[Mapping[str, Callable[[Document], object]]] = {
    AVERAGES: lambda found: decode(found.data, AveragesPart, what=found.path),
    MOVES: lambda found: decode_moves(found.data, what=found.path),
    REQUESTS: lambda found: decode_request(found.data, what=found.path),
    INTENTS: lambda found: decode_intent(_of_bundle(found)),
    SPLITS: lambda found: decode_split(_of_bundle(found), _bundle(found)),
}


async def document_check(coordination: Coordination) -> Check:
    """Whether all of them can be read; those that cannot, with why."""
    bad: list[str] = []

    def look(read: Callable[[Any], object], found: Any) -> None:
        try:
            read(found)
        except CodecError as error:
            bad.append(str(error))

    try:
        for path, read in _SINGLE.items():
            document = await coordination.read(path)
            if document is not None:
                look(read, document)
        for folder, read in _FOLDERS.items():
            for found in await coordination.read_tree(folder):
                look(read, found)
        state = await coordination.read_tree(STATE)
        if state:
            look(lambda chunks: decode_state(chunks, what=STATE), state)
    except StoreError as error:
        return Check(name="documents", ok=False, detail=str(error), fix="try again")
    try:
        await OwnedLimits(coordination).load()
    except StoreError as error:
        bad.append(f"{HELD} or {NATIVE}: {error}")
    if bad:
        return Check(name="documents", ok=False, detail="; ".join(bad[:5]), fix=_FIX)
    return Check(name="documents", ok=True, detail="everything below our root can be read")


def _bundle(found: Document) -> str:
    return unquote(found.path.rpartition("/")[2])


def _of_bundle(found: Document) -> Document:
    if not is_bundle(_bundle(found)):
        raise unreadable(found.path, "its name is that of no bundle", code=Code.WRONG_TYPE)
    return found


# What `doctor` says of the ownership channel.


_PAUSE_SECONDS = 0.1


async def channel_checks(watch: ChannelWatch, clock: Clock, *, within: float = 10.0) -> list[Check]:
    """Is it followed, where is it, is anything wrong in it? Nothing to check where the load manager has none.

    Looks by itself, for a process in which `watch.run` is no task.
    """
    deadline = clock.boot() + within
    await watch.turn()
    while watch.expected and not watch.followed and clock.boot() < deadline:
        await clock.sleep(_PAUSE_SECONDS)
        await watch.turn()
    if not watch.expected:
        return []
    checks = [_followed(watch)]
    return [*checks, _variant(watch), _findings(watch)] if watch.followed else checks


def _followed(watch: ChannelWatch) -> Check:
    if watch.view is not None and watch.followed:
        return Check(name="ownership channel", ok=True, detail=f"followed, {len(watch.view.units)} bundles")
    return Check(
        name="ownership channel",
        ok=False,
        detail=watch.fault,
        fix="let this host reach the brokers' service and web ports, and the metadata store; its identity must be "
        "allowed to read the brokers' settings and to consume in the namespace pulsar/system",
    )


def _variant(watch: ChannelWatch) -> Check:
    obstacle = watch.obstacle()
    where = VARIANTS[watch.view.variant] if watch.view is not None else "unknown"
    return Check(
        name="channel variant",
        ok=not obstacle,
        detail=obstacle or f"in the {where} on every broker",
        fix="finish the migration of the channel; nothing is moved until then" if obstacle else "",
    )


def _findings(watch: ChannelWatch) -> Check:
    found = Counter(row.code for row in watch.findings())
    text = ", ".join(f"{count} {code}" for code, count in found.items())
    return Check(
        name="channel findings",
        ok=not found,
        detail=text or "nothing wrong",
        fix="`bundlekeel channel` lists them with what mends each" if found else "",
        severity="warning" if found else "error",
    )
