"""Rows of the API about Pulsar's ownership channel (extensible load manager): one per bundle, filtered and paged."""

from __future__ import annotations

from bundlekeel.model.channel_states import ServiceUnit, UnitState
from bundlekeel.model.names import namespace_of
from bundlekeel.ports import ChannelView
from bundlekeel.pulsar.channel.responses import UnitView
from bundlekeel.pulsar.sources.ownership import serving


def unit_row(bundle: str, unit: ServiceUnit, *, seen_ms: int, now_ms: int) -> UnitView:
    """Return the row of a bundle's entry in the channel. `seen_ms`: Unix time at which this sidecar received it."""
    owner = serving(unit)
    return UnitView(
        bundle=bundle,
        state=unit.state,
        owner=owner.broker_id if owner is not None and owner.broker_id else None,
        destination=unit.destination,
        source=unit.source,
        children=dict(unit.children),
        force=unit.force,
        version=unit.version,
        since_ms=unit.timestamp_ms or seen_ms,
        age_seconds=max(0.0, (now_ms - seen_ms) / 1000),
    )


def row_of(view: ChannelView, bundle: str, now_ms: int) -> UnitView | None:
    """Return the row of one bundle; None: the ownership channel has no entry for it (state Init)."""
    unit = view.units.get(bundle)
    if unit is None:
        return None
    return unit_row(bundle, unit, seen_ms=view.seen_ms.get(bundle, now_ms), now_ms=now_ms)


def unit_rows(
    view: ChannelView,
    now_ms: int,
    *,
    state: UnitState | None = None,
    broker: str | None = None,
    namespace: str | None = None,
    after: str = "",
    limit: int = 1000,
) -> list[UnitView]:
    """Return at most `limit` rows in the order of bundle names, from the bundle that follows `after`.

    `broker`: only bundles with this destination or source."""
    bundles = sorted(
        bundle
        for bundle, unit in view.units.items()
        if bundle > after
        and state in (None, unit.state)
        and (broker is None or broker in (unit.destination, unit.source))
        and (namespace is None or namespace_of(bundle) == namespace)
    )
    rows = (row_of(view, bundle, now_ms) for bundle in bundles[:limit])
    return [row for row in rows if row is not None]
