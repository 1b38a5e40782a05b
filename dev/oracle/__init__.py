"""Pulsar's real load-balancing classes, asked over a pipe: what `compat` forms and benches are compared with."""

from dev.oracle.oracle import Oracle, OracleError

__all__ = ["Oracle", "OracleError"]
