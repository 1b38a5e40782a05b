"""Parameters of drains and of warming brokers, a part of the table in core/model/parameter_table.py."""

from __future__ import annotations

from bundlekeel.core.model.parameter_spec import ParameterSpec as _S

OPERATIONS: tuple[_S, ...] = (
    _S(
        name="drain_max_moves_per_cycle",
        unit="moves",
        used_by="drain",
        why="budget of all drains in one cycle, beside that of the strategy; the next cycle follows at once",
    ),
    _S(
        name="warm_max_moves_per_cycle",
        unit="moves a broker",
        used_by="warm",
        why="so many bundles a cycle come to a broker that is being warmed",
    ),
    _S(
        name="warm_until_share",
        unit="ratio of the mean score",
        maximum=1.0,
        used_by="warm",
        why="a broker that carries this share of the mean is warm",
    ),
)
