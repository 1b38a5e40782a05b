"""The demo's settings: addresses, names, files, and what this one machine can carry. Nothing else is set.

Strategy, thresholds, hit counts, budgets, intervals and time-outs are the shipped defaults; a test compares
(tests/unit/dev/test_demo_settings.py).
"""

from __future__ import annotations

# Keys the demo may set. `capacity` describes the machine: all brokers share its CPU, and its network cards report no
# limit, so a plausible throughput stands in for both (docs/concepts/capacity.md).
ALLOWED = frozenset(
    {"cluster", "mode", "metadata_store", "configuration_store", "member_id", "capacity", "api", "journal", "logging"}
)
