"""Prevents the deletion of Bundlekeel's shared state while limits of quota groups are set."""

from __future__ import annotations

from bundlekeel.model.errors import Conflict
from bundlekeel.model.text_format import numbered
from bundlekeel.ports import Coordination
from bundlekeel.quotas.enforcing.owned_limits import OwnedLimits


async def forbid_uninstall(coordination: Coordination) -> None:
    """Raise Conflict if Bundlekeel has set rates or ResourceGroups: only the shared state has their earlier values."""
    owned, groups = await OwnedLimits(coordination).load()
    if count := len(owned) + len(groups):
        raise Conflict(f"{numbered(count, 'rate')} of quota groups would stay: run `bundlekeel handback` first")
