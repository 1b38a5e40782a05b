"""Checks of `doctor`: clocks, the ownership channel, documents under our root, and whether the sidecars may act."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from statistics import median_low
from typing import Any, Final
from urllib.parse import unquote

from bundlekeel.codec.external_input import unreadable
from bundlekeel.codec.report import is_bundle
from bundlekeel.core.model.codes import Code
from bundlekeel.core.model.errors import CodecError, StoreError
from bundlekeel.core.model.text_format import some
from bundlekeel.daemon.answers.picture import Check
from bundlekeel.daemon.execution.intents import INTENTS, decode_intent
from bundlekeel.daemon.execution.split_intents import SPLITS, decode_split
from bundlekeel.daemon.operations.reviews import REVIEWS, decode_reviews
from bundlekeel.daemon.state.documents import AveragesPart, Desired, decode, decode_moves, decode_request, decode_state
from bundlekeel.daemon.state.owned_limits import HELD, NATIVE, OwnedLimits
from bundlekeel.daemon.state.shared_state import AVERAGES, DESIRED, MOVES, REQUESTS, STATE
from bundlekeel.daemon.state.takeover_record import TAKEOVER, decode_takeover
from bundlekeel.ports import Coordination, Document, Metadata, RawClusterView

UNREADABLE_FIX: Final = (
    "it is ignored, or read as the safe state (paused, frozen); check who may write below Bundlekeel's root, then "
    "delete that node (`desired`: not that one; `bundlekeel pause`, ask again for what people wanted, and "
    "`bundlekeel resume` last)"
)
# Of the takeover and of limits: nothing else knows it.
_FIX_RECORD: Final = (
    "do not delete that node yet: it alone says what the brokers had before; copy it, and put these values back by "
    "hand (runbook BundlekeelDocumentsUnreadable)"
)
_SINGLE: Final[Mapping[str, Callable[[Document], object]]] = {
    DESIRED: lambda found: decode(found.data, Desired, what=found.path, exact=True) if found.data else None,
    TAKEOVER: lambda found: decode_takeover(found.data),
    REVIEWS: lambda found: decode_reviews(found.data),
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
    fixes: set[str] = set()

    def look(read: Callable[[Any], object], found: Any, fix: str = UNREADABLE_FIX) -> None:
        try:
            read(found)
        except CodecError as error:
            bad.append(str(error))
            fixes.add(fix)

    try:
        for path, read in _SINGLE.items():
            document = await coordination.read(path)
            if document is not None:
                await asyncio.to_thread(look, read, document, _FIX_RECORD if path == TAKEOVER else UNREADABLE_FIX)
        for folder, read in _FOLDERS.items():
            for found in await coordination.read_tree(folder):
                await asyncio.to_thread(look, read, found)
        state = await coordination.read_tree(STATE)
        if state:
            await asyncio.to_thread(look, lambda chunks: decode_state(chunks, what=STATE), state)
    except StoreError as error:
        return Check.failed("documents", str(error), "try again")
    try:
        await OwnedLimits(coordination).load()
    except StoreError as error:
        bad.append(f"{HELD} or {NATIVE}: {error}")
        fixes.add(_FIX_RECORD)
    if bad:
        fix = "; any other: ".join(fix for fix in (_FIX_RECORD, UNREADABLE_FIX) if fix in fixes)
        return Check.failed("documents", "; ".join(bad[:5]), fix)
    return Check.passed("documents", "everything below Bundlekeel's root can be read")


async def migration_check(metadata: Metadata) -> Check:
    """Check that the brokers do not move their metadata to another store (PIP-454), and have not moved it."""
    name = "store migration"
    try:
        state = await metadata.migration()
    except StoreError as error:
        return Check.failed(name, str(error), "grant read below /pulsar/migration-coordinator to this identity")
    if state.code is None:
        return Check.passed(name, state.detail)
    detail = f"{state.code}: {state.code.explanation} ({state.detail})"
    if state.code is Code.STORE_MIGRATING:
        return Check.warned(name, detail, "wait until Pulsar has completed the migration; nothing moves until then")
    fix = "run `bundlekeel handback`, then stop the sidecars (runbook BundlekeelStoreMigrated)"
    return Check.failed(name, detail, fix)


def _bundle(found: Document) -> str:
    return unquote(found.path.rpartition("/")[2])


def _of_bundle(found: Document) -> Document:
    if not is_bundle(_bundle(found)):
        raise unreadable(found.path, "its name is that of no bundle", code=Code.WRONG_TYPE)
    return found


_APART_SECONDS: Final = 30.0


def clocks_check(picture: RawClusterView, now_ms: int) -> Check:
    """Compare the clocks of brokers and of this host. Decisions of Pulsar depend on them, ours do not.

    Brokers are compared with each other: the newest report of a quiet cluster may be old, so that all of them seem to
    be behind this host.
    """
    ahead = {r.broker_id: (r.clock_ahead_ms or max(0, r.last_update - now_ms)) / 1000 for r in picture.reports}
    usual = median_low(ahead.values()) if ahead else 0.0
    apart = {broker: by - usual for broker, by in ahead.items() if abs(by - usual) >= _APART_SECONDS}
    lines = [
        f"{name} is {abs(by):.0f} s {'ahead of' if by > 0 else 'behind'} other brokers" for name, by in apart.items()
    ]
    if usual >= _APART_SECONDS:
        lines.append(f"this host is {usual:.0f} s behind the brokers")
    if not lines:
        return Check.passed("clocks", "the brokers' clocks agree, and this host's is not behind them")
    return Check.warned("clocks", some(lines), "synchronise the clocks (NTP); balancing does not depend on them")
