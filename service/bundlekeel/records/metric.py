"""One row of the table of metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One row: name without prefix, type (a table is a gauge whose series are set together), labels, help.

    `starts`: values of a counter's only label that start at 0, since `increase` ignores a series that starts at 1.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram", "table"]
    labels: tuple[str, ...]
    help: str
    starts: tuple[str, ...] = ()
