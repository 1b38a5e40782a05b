"""Arrow schemas of the tasks' results; `read.py` has the Spark schemas.

A row of `DIGEST` describes one cycle, ten minutes of one broker, or one unreadable file. Its column `kind` shows which.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

SLICE_MS: Final = 600_000
_PLACE: Final = [("date", pa.string()), ("hour", pa.int32()), ("epoch", pa.int64())]


def _doubles(*names: str) -> list[tuple[str, pa.DataType]]:
    return [(name, pa.float64()) for name in names]


_FILE: Final = pa.struct([("first", pa.int64()), ("last", pa.int64()), ("size", pa.int64())])
PERIODS: Final = pa.schema([*_PLACE, ("files", pa.list_(_FILE))])

# `nan`, `negative`, `absurd`: number of impossible values in the snapshot, of which `why` names one. `imbalance`:
# highest score / mean, less 1.
# `params`: parameters and learned costs at that time as JSON, by path, only in the last usable cycle of a period.
CYCLES: Final = pa.schema(
    [
        *_PLACE,
        ("cycle", pa.int64()),
        ("wall_ms", pa.int64()),
        ("status", pa.string()),
        ("why", pa.string()),
        ("dropped", pa.int32()),
        ("skipped", pa.int32()),
        ("brokers", pa.int32()),
        ("bundles", pa.int32()),
        ("nan", pa.int64()),
        ("negative", pa.int64()),
        ("absurd", pa.int64()),
        *_doubles("messages", "bytes", "imbalance"),
        ("moves", pa.int32()),
        ("acted", pa.bool_()),
        ("params", pa.string()),
    ]
)

# Ten minutes of one broker: means over the cycles. `carried`: bytes per second of its bundles; `told`: of its report.
SLICES: Final = pa.schema(
    [
        *_PLACE,
        ("broker", pa.string()),
        ("start_ms", pa.int64()),
        ("samples", pa.int64()),
        *_doubles("score", "usage_cpu", "carried", "told"),
    ]
)

FILES: Final = pa.schema([*_PLACE, ("path", pa.string()), ("why", pa.string())])

PARTS: Final = {"cycle": CYCLES, "slice": SLICES, "file": FILES}
DIGEST: Final = pa.schema([("kind", pa.string()), *((name, pa.struct(list(part))) for name, part in PARTS.items())])

LIES: Final = pa.schema([("date", pa.string()), ("broker", pa.string()), ("why", pa.string())])
