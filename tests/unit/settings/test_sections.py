"""Sections of the settings: notifications, calibration and shadow strategies, and what the wiring makes of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from bundlekeel.model.errors import ConfigError
from bundlekeel.ports.records import EVENTS
from bundlekeel.recalibration.adopting.wiring import RecalibrationParts
from bundlekeel.records.metrics import PrometheusTelemetry
from bundlekeel.settings.load import LoadedSettings, load_settings
from bundlekeel.wiring.notifications import notifications
from bundlekeel.wiring.outside import open_outside
from bundlekeel.wiring.serving import Serving
from bundlekeel.wiring.sidecar import sidecar
from tests.support.memory_source import RealClock
from tests.support.threshold_cases import as_bytes, document

CANARY = "c4nary-h00k-5ecret"


def with_webhook(**hook: Any) -> LoadedSettings:
    """Settings with one webhook."""
    return load_settings(None, {"notify": {"webhooks": [{"name": "ops", **hook}]}}, environ={})


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": f"ftp://{CANARY}"},
        {"url": CANARY},
        {"url": f"http://{CANARY}", "url_file": "x"},
        {"url": {"a": CANARY}},
        {"ur1": CANARY},
        {"url": f"http://{CANARY}", "kind": "pager"},
        {"url": f"http://{CANARY}", "events": ["everything"]},
        {"url": f"http://{CANARY}", "name": "a b"},
        {},
    ],
)
def test_wrong_webhooks_are_refused_without_their_address(wrong: dict[str, Any]) -> None:
    """The message names the key, not the value."""
    with pytest.raises(ConfigError) as error:
        with_webhook(**wrong)
    assert "notify.webhooks" in str(error.value)
    assert CANARY not in str(error.value) and CANARY not in repr(error.value)


@pytest.mark.parametrize("wrong", [{"webhooks": CANARY}, CANARY, {"webhook": CANARY}])
def test_whole_sections_are_no_leak_either(wrong: Any) -> None:
    """An address at a wrong place."""
    with pytest.raises(ConfigError) as error:
        load_settings(None, {"notify": wrong}, environ={})
    assert CANARY not in str(error.value) and CANARY not in repr(error.value)


def test_two_of_one_name_are_refused_and_nobody_is_told_by_default() -> None:
    """Names are labels of metrics; without receivers nothing is wired."""
    hook = {"name": "a", "url": "http://x"}
    with pytest.raises(ConfigError, match="same name"):
        load_settings(None, {"notify": {"webhooks": [hook, hook]}}, environ={})
    none = load_settings(None, {}, environ={})
    assert notifications(none, PrometheusTelemetry(), RealClock(), member=str, leads=bool) is None


def test_the_environment_takes_json() -> None:
    """Lists are given as JSON there, as other lists are."""
    options = {"BUNDLEKEEL__NOTIFY__WEBHOOKS": json.dumps([{"name": "a", "url_file": "hook", "kind": "slack"}])}
    (hook,) = load_settings(None, environ=options).settings.notify.webhooks
    assert (hook.kind, hook.url_file, hook.events) == ("slack", Path("hook"), EVENTS)


def loaded(tmp_path: Path, **options: Any) -> LoadedSettings:
    """Settings whose files lie in a folder of their own."""
    own = {"journal.path": None, "api.socket": None, "member_id": "m"}
    (tmp_path / "bundlekeel.yaml").write_text("metadata_store: zk:127.0.0.1:2181\n")
    return load_settings(tmp_path / "bundlekeel.yaml", own | options, environ={})


def build_serving(inputs: LoadedSettings) -> Serving:
    """A sidecar of these settings, nothing of it connected."""
    return sidecar(inputs, open_outside(inputs))


def test_everything_is_off_by_default() -> None:
    settings = LoadedSettings.defaults().settings
    assert (settings.calibration.mode, settings.calibration.uri, settings.shadow.strategies) == ("off", None, ())


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"calibration.mode": "adopt"}, "calibration.uri"),
        ({"calibration.mode": "always", "calibration.uri": "x"}, "calibration.mode"),
        ({"calibration.uri": "s3:bucket"}, "calibration.uri"),
        ({"calibration.uri": " "}, "calibration.uri"),
        ({"calibration.max_steps": 0}, "calibration.max_steps"),
        ({"calibration.min_coverage": 1.1}, "calibration.min_coverage"),
        ({"calibration.canary": "2d"}, "calibration.canary"),
        ({"shadow.strategies": ["nobody"]}, "shadow.strategies"),
        ({"shadow.strategies": ["avg", "avg"]}, "shadow.strategies"),
    ],
)
def test_refusals(tmp_path: Path, options: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field.replace(".", r"\.")):
        loaded(tmp_path, **options)


def recalibration_of(serving: Serving) -> RecalibrationParts:
    """Return the parts of the feature."""
    return cast(RecalibrationParts, serving.requests.leading.features.parts["recalibration"])


async def test_off_is_what_it_was(tmp_path: Path) -> None:
    """No task, the settings' own parameters, and a view that says so."""
    built = build_serving(loaded(tmp_path))
    leading = built.requests.leading
    parts = recalibration_of(built)
    assert parts.shadow_strategies is None and leading.effective_parameters.values == {}
    assert (await built.service.features["recalibration"].view()).sentence == "calibration is off (calibration.mode)"
    assert leading.cycle.params == leading.effective_parameters.base


async def test_on_is_wired(tmp_path: Path) -> None:
    """A folder named relative to the settings file is read, and the strategies are there."""
    (tmp_path / "proposals/2026-09-15").mkdir(parents=True)
    (tmp_path / "proposals/2026-09-15/thresholds.json").write_bytes(as_bytes(document()))
    options = {
        "calibration.mode": "recommend",
        "calibration.uri": "proposals",
        "shadow.strategies": "threshold, uniform",
    }
    built = build_serving(loaded(tmp_path, **options))
    leading = recalibration_of(built)
    assert leading.shadow_strategies is not None
    await leading.calibration.check()
    view = await built.service.features["recalibration"].view()
    assert view.error == "" and view.document["values"] == {"avg_low_threshold_percent": 20.0}
    assert [row.parameter for row in view.changes] == ["avg_low_threshold_percent"]
    await leading.calibration.close()
    await leading.shadow_strategies.close()


@pytest.mark.parametrize(
    "key", ["review", "quotas.enforcer", "calibration.mode", "counters.source", "notify.kubernetes"]
)
def test_off_needs_no_quotes_where_it_is_allowed(key: str, tmp_path: Path) -> None:
    """YAML reads it as false. `on` is a word of none of them."""
    section, _, name = key.rpartition(".")
    file = tmp_path / "bundlekeel.yaml"

    def write(word: str) -> None:
        file.write_text(f"{section}: {{{name}: {word}}}" if section else f"{name}: {word}")

    write("off")
    value: Any = load_settings(file, environ={}).settings
    for part in key.split("."):
        value = getattr(value, part)
    assert value == "off"
    write("on")
    with pytest.raises(ConfigError, match=rf"{key} = true: not allowed; YAML reads off"):
        load_settings(file, environ={})
