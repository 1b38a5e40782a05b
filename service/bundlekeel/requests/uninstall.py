"""Deletes Bundlekeel's shared state from the metadata store, if no sidecar or broker needs it any more."""

from __future__ import annotations

from collections.abc import Sequence

from bundlekeel.model.errors import Conflict, StaleWrite
from bundlekeel.ports import Coordination
from bundlekeel.requests.doctor_checks import StateCheck
from bundlekeel.requests.takeover import read_record


async def uninstall(coordination: Coordination, forbid: Sequence[StateCheck] = (), *, dry_run: bool) -> list[str]:
    """Delete all nodes below Bundlekeel's root and return their names; with `dry_run`, only return the names.

    Raises Conflict while a sidecar runs, and while brokers still have settings or rates that Bundlekeel set, because
    only the shared state contains the previous values. Raises CodecError or StoreError if the state cannot be read.
    `forbid`: functions that raise Conflict if an optional feature still needs the state."""
    paths = await coordination.paths()
    running = {member.id for member in await coordination.members()}
    if leader := await coordination.leader():
        running.add(leader.id)
    if running:
        raise Conflict(f"sidecars still run: {', '.join(sorted(running))}; stop them first")
    if await read_record(coordination) is not None:
        raise Conflict("a takeover is in force: run `bundlekeel handback` first, which needs what would be deleted")
    for check in forbid:
        await check(coordination)
    if paths and not dry_run:
        try:
            await coordination.erase(paths)
        except StaleWrite as error:
            raise Conflict(f"nothing was deleted, a sidecar wrote meanwhile: stop it and try again ({error})") from None
    return paths
