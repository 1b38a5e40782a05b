"""Statistics of scalable topics (Pulsar 5.0, `/admin/v2/scalable/{tenant}/{namespace}/{topic}/stats`)."""

from __future__ import annotations

from bundlekeel.model.names import broker_id_of_url
from bundlekeel.pulsar.formats.external_input import load_object


def decode_segment_owners(body: bytes) -> dict[str, str]:
    """Return the broker id of the owner of each segment, by the segment's full name; without unowned segments.

    Raises CodecError if the body is not a JSON object.
    """
    segments = load_object(body, what="the scalable topic").get("segments")
    rows = segments.values() if isinstance(segments, dict) else segments if isinstance(segments, list) else ()
    pairs = [(row.get("name"), row.get("ownerBroker")) for row in rows if isinstance(row, dict)]
    return {
        name: broker_id_of_url(owner)
        for name, owner in pairs
        if isinstance(name, str) and isinstance(owner, str) and owner
    }
