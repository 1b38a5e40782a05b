"""Strategy and placement under `compat`: defaults as `decide` has them, and never half of AvgShedder."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bundlekeel.compat.decide_lines import parse_reset
from bundlekeel.leader.cycle.plan_responses import PlanRequest
from bundlekeel.leader.cycle.planner import parameters_of
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.parameter_table import PLACEMENTS, RELEASES, STRATEGIES
from bundlekeel.model.parameters import Parameters, defaults
from bundlekeel.planning import engine
from bundlekeel.settings.describe import warnings_of
from bundlekeel.settings.load import load_settings
from bundlekeel.settings.model import Settings
from bundlekeel.settings.parameters import to_parameters
from bundlekeel.settings.problems import ConfigErrors
from tests.support.builders import cluster, run

SHEDDER, PLACEMENT = "loadBalancerLoadSheddingStrategy", "loadBalancerLoadPlacementStrategy"
IMPL = "org.apache.pulsar.broker.loadbalance.impl."
STOCK = {SHEDDER: f"{IMPL}ThresholdShedder", PLACEMENT: f"{IMPL}LeastLongTermMessageRate"}
AVG = {SHEDDER: f"{IMPL}AvgShedder", PLACEMENT: f"{IMPL}AvgShedder"}


def load(tmp_path: Path, **values: Any) -> Settings:
    """Settings out of a file with these values."""
    file = tmp_path / "config.yaml"
    file.write_text(json.dumps(values), encoding="utf-8")
    return load_settings(file, environ={}).settings


def pair(params: Parameters) -> tuple[str, str]:
    return params.strategy, params.placement


@pytest.mark.parametrize(
    ("text", "placement", "repair"),
    [
        ("placement: {repair: on}", "least_resource_usage", True),
        ("placement: {repair: off, name: round_robin}", "round_robin", False),
        ('placement: {repair: "on", name: round_robin}', "round_robin", True),
        ("placement: round_robin\nparameters: {placement_repair: true}", "round_robin", True),
        ("placement: round_robin", "round_robin", False),
    ],
)
def test_n_m_placement_is_a_name_or_a_section(tmp_path: Path, text: str, placement: str, repair: bool) -> None:
    """`placement.repair`: off by default."""
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    params = to_parameters(load_settings(file, environ={}).settings).values
    assert (params.placement, params.placement_repair) == (placement, repair)
    by_variable = load_settings(file, environ={"BUNDLEKEEL__PLACEMENT__REPAIR": "on"})
    assert to_parameters(by_variable.settings).values.placement_repair


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("placement: {repair: always}", "parameters.placement_repair"),
        ("placement: {name: best}", "placement"),
        ("placement: {repairs: on}", "placement"),
    ],
)
def test_n_m_a_wrong_section_of_the_placement_is_refused(tmp_path: Path, text: str, field: str) -> None:
    """With the file and the key."""
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigErrors) as caught:
        load_settings(file, environ={})
    assert (caught.value.field, caught.value.origin) == (field, f"file:{file}:1")


def test_compat_begins_with_pulsars_own_choice(tmp_path: Path) -> None:
    """The strategy named `avg` brings its placement along."""
    got, _ = to_parameters(load(tmp_path, compat="4.2"))
    assert pair(got) == ("threshold", "least_long_term_message_rate")
    assert got.transfer_enabled
    for named in ({"compat": "4.2", "strategy": "avg"}, {"compat": "5.0"}):
        got, _ = to_parameters(load(tmp_path, **named))
        assert pair(got) == ("avg", "avg")


@pytest.mark.parametrize("compat", RELEASES)
@pytest.mark.parametrize("strategy", [None, *(name for name in STRATEGIES if name != "deviation")])
def test_decide_and_settings_default_alike(tmp_path: Path, compat: str, strategy: str | None) -> None:
    """Every parameter that neither names, whatever else is named. Only `decide` has no time to wait: where Pulsar's
    class counts nothing, it acts in the first call."""
    named = {"compat": compat} | ({"strategy": strategy} if strategy else {})
    decided = defaults() | parse_reset(msgspec.Raw(msgspec.json.encode(named))).parameters
    got, _ = to_parameters(load(tmp_path, **named))
    at_once = compat == "none" and strategy not in (None, "avg", "transfer")
    assert decided.pop("move_price") == (0.0 if at_once else Parameters().move_price)
    assert {name: getattr(got, name) for name in decided} == decided


@pytest.mark.parametrize(
    ("named", "lines"),
    [
        ({"strategy": "avg", "placement": "round_robin"}, ["strategy avg", "placement round_robin"]),
        ({"strategy": "uniform", "placement": "avg"}, ["strategy uniform", "placement avg"]),
        ({"placement": "avg"}, ["strategy threshold", "placement avg", "its default strategy"]),
        ({"parameters": {**AVG, PLACEMENT: STOCK[PLACEMENT]}}, ["strategy avg", "placement least_long_term"]),
        ({"parameters": {**AVG, SHEDDER: STOCK[SHEDDER]}}, ["strategy threshold", "placement avg"]),
    ],
)
def test_half_of_avg_shedder_is_refused(tmp_path: Path, named: dict[str, Any], lines: list[str]) -> None:
    """Both fields and values are in the message, and the release; the corrected forms may be mixed."""
    with pytest.raises(ConfigErrors) as caught:
        load(tmp_path, compat="4.2", **named)
    (problem,) = caught.value.problems
    assert problem.field == "placement"
    for text in (*lines, "compat 4.2", "config.yaml", "strategy avg with placement avg, or neither"):
        assert text in str(problem)
    load(tmp_path, **named)


def test_avg_shedder_can_be_the_shedder_alone_since_5_0(tmp_path: Path) -> None:
    """Pulsar 5.0 then uses the other placement and logs a warning. As the placement alone, it is replaced."""
    settings = load(tmp_path, compat="5.0", placement="round_robin")
    assert pair(to_parameters(settings).values) == ("avg", "round_robin")
    assert [line for line in warnings_of(settings) if "AvgShedder's own targets" in line]
    with pytest.raises(ConfigErrors, match=r"Pulsar 5\.0 uses least_long_term_message_rate instead") as caught:
        load(tmp_path, compat="5.0", strategy="threshold", placement="avg")
    (problem,) = caught.value.problems
    assert problem.allowed == "placement least_long_term_message_rate, or strategy avg"


@pytest.mark.parametrize(
    ("brokers", "expected", "left"),
    [
        ({**STOCK, SHEDDER: AVG[SHEDDER]}, ("avg", "least_long_term_message_rate"), None),
        ({**STOCK, PLACEMENT: AVG[PLACEMENT]}, ("threshold", "least_long_term_message_rate"), "placement"),
        ({PLACEMENT: STOCK[PLACEMENT]}, ("avg", "least_long_term_message_rate"), None),
        ({}, ("avg", "avg"), None),
    ],
)
def test_brokers_of_5_0_may_have_half_of_avg_shedder(
    tmp_path: Path, brokers: dict[str, str], expected: tuple[str, str], left: str | None
) -> None:
    """The pair that the brokers use, also if they replace their placement."""
    got, origins = to_parameters(load(tmp_path, compat="5.0", adopt_broker_settings=True), brokers)
    assert pair(got) == expected
    assert [name for name in ("strategy", "placement") if "cannot be used with" in origins[name]] == [left] * bool(left)


@pytest.mark.parametrize(
    ("named", "brokers", "expected", "left"),
    [
        ({"strategy": "avg"}, STOCK, ("avg", "avg"), "placement"),
        ({"strategy": "uniform"}, AVG, ("uniform", "least_long_term_message_rate"), "placement"),
        ({"placement": "round_robin"}, AVG, ("threshold", "round_robin"), "strategy"),
        ({}, {**AVG, PLACEMENT: STOCK[PLACEMENT]}, ("avg", "avg"), "placement"),
        ({}, AVG, ("avg", "avg"), None),
        ({}, STOCK, ("threshold", "least_long_term_message_rate"), None),
    ],
)
def test_half_of_avg_shedder_is_not_adopted(
    tmp_path: Path, named: dict[str, str], brokers: dict[str, str], expected: tuple[str, str], left: str | None
) -> None:
    got, origins = to_parameters(load(tmp_path, compat="4.2", adopt_broker_settings=True, **named), brokers)
    assert pair(got) == expected
    refused = [name for name in ("strategy", "placement") if "cannot be used with" in origins[name]]
    assert refused == ([left] if left else [])


@pytest.mark.parametrize(
    ("running", "changes", "expected"),
    [
        (("threshold", "least_long_term_message_rate"), {"strategy": "avg"}, ("avg", "avg")),
        (("avg", "avg"), {"strategy": "uniform"}, ("uniform", "least_long_term_message_rate")),
        (("threshold", "round_robin"), {"strategy": "uniform"}, ("uniform", "round_robin")),
        (("avg", "avg"), {}, ("avg", "avg")),
    ],
)
@pytest.mark.parametrize("compat", ["4.2", "5.0"])
def test_another_strategy_for_a_plan_defaults_alike(
    running: tuple[str, str], changes: dict[str, str], expected: tuple[str, str], compat: str
) -> None:
    """`plan --strategy`: the placement stays as it runs, unless that would be half of AvgShedder."""
    params = Parameters(strategy=running[0], placement=running[1], compat=compat)
    assert pair(parameters_of(PlanRequest(**changes), params)) == expected


def test_a_plan_with_avg_shedder_of_5_0_uses_the_stock_pair() -> None:
    """Unless it runs already, with a placement that an operator chose."""
    stock = parameters_of(PlanRequest(strategy="avg", parameters={"compat": "5.0"}), Parameters())
    assert pair(stock) == ("avg", "avg")
    chosen = Parameters(strategy="avg", placement="round_robin", compat="5.0")
    assert pair(parameters_of(PlanRequest(), chosen)) == ("avg", "round_robin")


@pytest.mark.parametrize("placement", [name for name in PLACEMENTS if name != "avg"])
def test_a_plan_with_half_of_avg_shedder_is_refused(placement: str) -> None:
    """Named by field and value; without `compat` it is allowed."""
    request = PlanRequest(strategy="avg", placement=placement)
    with pytest.raises(ConfigError, match=f"strategy avg with placement {placement}") as caught:
        parameters_of(request, Parameters(compat="4.0"))
    assert (caught.value.field, caught.value.value) == ("placement", placement)
    assert pair(parameters_of(request, Parameters())) == ("avg", placement)


def test_compat_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings refuse a release, and a plan never uses the corrected class in its place."""
    monkeypatch.setitem(sys.modules, "bundlekeel.compat.in_plan", None)
    with pytest.raises(ConfigErrors, match=r"the package bundlekeel\.compat") as caught:
        load(tmp_path, compat="4.2")
    assert (caught.value.problems[0].field, caught.value.problems[0].allowed) == ("compat", "none")
    assert load(tmp_path, compat="none")
    monkeypatch.setattr(engine, "PULSAR_SHEDDERS", {})
    with pytest.raises(ConfigError, match=r"bundlekeel\.compat\.in_plan, which is not imported"):
        run(cluster([[0.5], [0.1]]), strategy="threshold", compat="4.2")
