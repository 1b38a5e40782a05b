"""One row of the table of parameters."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """One row. `pulsar_keys`: accepted names, the current one first. `factor`: ours = Pulsar's x factor.
    `pattern`: what each name of a list must match; none: any. `instead`: only Pulsar's own classes (`compat`) read it,
    and with `compat: none` this is to be set."""

    name: str
    pulsar_keys: tuple[str, ...] = ()
    unit: str
    why: str
    used_by: str
    minimum: float | None = 0.0
    maximum: float | None = None
    factor: float = 1.0
    choices: tuple[str, ...] = ()
    pattern: str = ""
    instead: str = ""
