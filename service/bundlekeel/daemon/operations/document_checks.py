"""`doctor`'s look at what is stored under our root: what cannot be read as its readers do is named."""

from __future__ import annotations

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
from bundlekeel.daemon.state.documents import AveragesPart, Desired, decode, decode_moves, decode_request, decode_state
from bundlekeel.daemon.state.owned_limits import HELD, NATIVE, OwnedLimits
from bundlekeel.daemon.state.shared_state import AVERAGES, DESIRED, MOVES, REQUESTS, STATE
from bundlekeel.daemon.state.takeover_record import TAKEOVER, decode_takeover
from bundlekeel.ports import Coordination, Document

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
