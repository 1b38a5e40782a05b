"""The demo runs on the shipped defaults."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from bundlekeel.settings.load import load_settings
from bundlekeel.settings.model import Settings
from bundlekeel.settings.parameters import to_parameters
from dev.sidecar import settings_for

# Keys that the demo is allowed to set. `capacity` describes the machine: all brokers share its CPU, and its network
# cards report no limit. So a typical throughput is set as the limit instead (docs/concepts/capacity.md).
ALLOWED = frozenset(
    {"cluster", "mode", "metadata_store", "configuration_store", "member_id", "capacity", "api", "journal", "logging"}
)


def test_demo_settings_differ_from_the_defaults_only_in_addresses_and_capacity(tmp_path: Path) -> None:
    """Nothing that decides is tuned for the demo: strategy, thresholds, budgets, intervals are the shipped ones."""
    cluster = SimpleNamespace(
        spec=SimpleNamespace(cluster_name="local"),
        metadata_url="zk:127.0.0.1:2181/pulsar",
        configuration_url="zk:127.0.0.1:2181/config",
    )
    settings_values = settings_for(cluster, "a", tmp_path)  # type: ignore[arg-type]
    assert set(settings_values) <= ALLOWED
    demo = load_settings(None, settings_values, environ={}).settings
    shipped = load_settings(None, environ={}).settings
    for name in set(Settings.model_fields) - ALLOWED:
        assert getattr(demo, name) == getattr(shipped, name), name
    assert to_parameters(demo) == to_parameters(shipped)
