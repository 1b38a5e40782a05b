"""What a running sidecar answers, each answer once: frozen dataclasses that the daemon makes, FastAPI describes in the
OpenAPI document, the CLI reads and fakes construct.

Numbers carry their unit in the name: `_ratio` 0..1, `_ms` milliseconds since 1970, `_seconds`; rates are msg/s,
throughput bytes/s. `service` has the questions.
"""
