"""The settings of the demo: addresses, names, files, and the capacity of this machine.

All other settings, such as strategy, thresholds, budgets and intervals, have their defaults
(tests/unit/dev/test_demo_settings.py checks this).
"""

from __future__ import annotations

# Keys that the demo is allowed to set. `capacity` describes the machine: all brokers share its CPU, and its network
# cards report no limit. So a typical throughput is set as the limit instead (docs/concepts/capacity.md).
ALLOWED = frozenset(
    {"cluster", "mode", "metadata_store", "configuration_store", "member_id", "capacity", "api", "journal", "logging"}
)
