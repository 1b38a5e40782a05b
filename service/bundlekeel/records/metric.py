"""One row of the table of metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `name`: without prefix. `kind`: its type; a `table` is a gauge whose series are all set together.

    `starts`: values of a counter's only label. Their series start at 0, because `increase` ignores a first value of 1.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram", "table"]
    labels: tuple[str, ...]
    help: str
    starts: tuple[str, ...] = ()
