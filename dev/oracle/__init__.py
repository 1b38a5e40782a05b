"""Run Pulsar's real load-balancing classes, to compare the `compat` package and benchmarks with them."""

from dev.oracle.oracle import Oracle, OracleError

__all__ = ["Oracle", "OracleError"]
