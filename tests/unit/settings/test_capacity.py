"""Limits of brokers that the settings set: how they reach planning, and which entry counts."""

from __future__ import annotations

from pathlib import Path

from bundlekeel.model.capacity import CapacityOverride, match_capacity
from tests.unit.settings.test_settings import load


class TestCapacity:
    def test_values_reach_the_core(self, tmp_path: Path) -> None:
        """In the order written; an exact id beats a glob, a glob a regular expression."""
        text = """
        capacity:
          "/b[0-9]:.*/": {msg_rate: 5, throughput: 6, direct_memory_mb: 7}
          "b*": {nic_gbps: 10, cpu: ignore, direct_memory: ignore}
          "b1:8080": {cores: 4, bandwidth: ignore}
        """
        overrides = load(tmp_path, text).settings.capacity_overrides
        assert overrides == (
            CapacityOverride(pattern="/b[0-9]:.*/", msg_rate=5, throughput=6, direct_memory_mb=7),
            CapacityOverride(pattern="b*", nic_gbps=10, ignore=("cpu", "direct_memory")),
            CapacityOverride(pattern="b1:8080", cores=4, ignore=("bandwidth",)),
        )
        assert match_capacity(overrides, "b1:8080") is overrides[2]
        assert match_capacity(overrides, "b2:8080") is overrides[1]
        assert match_capacity(overrides[:1], "b2:8080") is overrides[0]
        assert match_capacity(overrides, "c:1") is None

    def test_capacity_of_all_others(self, tmp_path: Path) -> None:
        page = (Path(__file__).parents[3] / "docs/concepts/capacity.md").read_text()
        example = page.partition("```yaml\n")[2].partition("```")[0]
        overrides = load(tmp_path, example).settings.capacity_overrides
        ids = ("broker-1.pulsar:8080", "broker-3.pulsar:8080", "10.0.7.4:8080")
        for order in (overrides, overrides[::-1]):
            assert [override.pattern for name in ids if (override := match_capacity(order, name))] == [
                "*",
                "broker-3.*:8080",
                r"/10\.0\.7\..*/",
            ]
