"""Responses of a running sidecar, as frozen dataclasses.

The daemon creates them, FastAPI describes them in the OpenAPI document, and the CLI reads them. Names of numbers carry
the unit: `_ratio` 0 to 1, `_ms` Unix time in milliseconds, `_seconds`; rates are msg/s, throughput is bytes/s.
"""
