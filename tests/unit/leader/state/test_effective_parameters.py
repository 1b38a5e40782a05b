"""Parameters shown as in effect are those that plans use, with the origin of each value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from bundlekeel.leader.state.effective_parameters import AdoptedParameters, EffectiveParameters, merging
from bundlekeel.settings.describe import describe
from bundlekeel.settings.load import LoadedSettings, load_settings

# As a broker of 4.2.4 answers: everything it runs with, its defaults included.
BROKERS = {
    "loadBalancerLoadSheddingStrategy": "org.apache.pulsar.broker.loadbalance.impl.ThresholdShedder",
    "maxUnloadPercentage": "0.2",
    "loadBalancerSheddingExcludedNamespaces": "a/b",
    "statsUpdateFrequencyInSecs": "30",
}
# Thresholds for strategy avg.
ADOPTED = {"avg_low_threshold_percent": 20.0}


def effective_parameters_of(loaded: LoadedSettings, adopted: Mapping[str, float]) -> EffectiveParameters:
    """As wiring makes it."""
    return EffectiveParameters(
        merging(loaded), lambda base: AdoptedParameters(adopted if base.strategy == "avg" else {})
    )


def show_parameters(loaded: LoadedSettings, effective_parameters: EffectiveParameters) -> dict[str, tuple[object, str]]:
    rows = describe(loaded, effective_parameters.effective)
    return {row["key"].removeprefix("parameters."): (row["value"], row["origin"]) for row in rows}


@pytest.mark.parametrize("adopt", [False, True])
@pytest.mark.parametrize("adopted", [{}, ADOPTED])
@pytest.mark.parametrize("namespaces", [(), ("t/ns",)])
def test_settings_shown_are_those_of_the_plan(
    tmp_path: Path, adopt: bool, adopted: Mapping[str, float], namespaces: tuple[str, ...]
) -> None:
    """Whether or not brokers' settings are adopted, thresholds were, and a takeover is a partial one."""
    file = tmp_path / "c.yaml"
    file.write_text(f"cluster: c\nadopt_broker_settings: {str(adopt).lower()}\nparameters: {{cpu_weight: 0.9}}\n")
    loaded = load_settings(file, environ={})
    effective_parameters = effective_parameters_of(loaded, adopted)
    params = effective_parameters(BROKERS, namespaces)
    settings_shown = show_parameters(loaded, effective_parameters)
    for name in (
        "strategy",
        "max_unload_ratio",
        "cpu_weight",
        "avg_low_threshold_percent",
        "statistics_interval_seconds",
    ):
        assert settings_shown[name][0] == getattr(params, name)
    for name in ("included_namespaces", "excluded_namespaces"):
        assert settings_shown[name][0] == list(getattr(params, name))
    assert settings_shown["strategy"] == (("threshold", "broker") if adopt else ("avg", "default"))
    assert settings_shown["max_unload_ratio"] == ((0.2, "broker") if adopt else (0.5, "default"))
    assert settings_shown["statistics_interval_seconds"] == (30.0, "broker")
    assert settings_shown["cpu_weight"] == (0.9, f"file:{file}:3")
    laid = adopted and not adopt
    assert settings_shown["avg_low_threshold_percent"] == ((20, "calibration") if laid else (15, "default"))
    assert settings_shown["included_namespaces"] == ((list(namespaces), "takeover") if namespaces else ([], "default"))
    # Brokers leave alone what a partial takeover names: no exclusion of ours.
    assert settings_shown["excluded_namespaces"] == (
        (["a/b"], "broker") if adopt and not namespaces else ([], "default")
    )
