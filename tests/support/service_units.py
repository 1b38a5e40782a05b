"""Entries of the ownership channel as a broker writes them."""

from __future__ import annotations

from typing import Any

import msgspec

from bundlekeel.model.channel_states import ServiceUnit


def encode_service_unit(unit: ServiceUnit) -> bytes:
    """The entry as Jackson writes it: fields in the record's order, "" is null and left out."""
    fields: dict[str, Any] = {"state": unit.state.value}
    if unit.destination:
        fields["dstBroker"] = unit.destination
    if unit.source:
        fields["sourceBroker"] = unit.source
    if unit.children:
        fields["splitServiceUnitToDestBroker"] = {child: broker or None for child, broker in unit.children.items()}
    fields |= {"force": unit.force, "timestamp": unit.timestamp_ms, "versionId": unit.version}
    return msgspec.json.encode(fields)
