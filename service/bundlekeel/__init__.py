"""Bundlekeel: a load balancer sidecar for Apache Pulsar.

Flow, one direction only: snapshot -> plan -> guard -> execute -> journal (docs/concepts/architecture.md).
"""

__version__ = "0.1.0"
