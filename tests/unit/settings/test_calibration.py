"""The calibration and shadow sections, and what bootstrap makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bundlekeel.core.model.errors import ConfigError
from bundlekeel.settings.load import LoadedSettings, load_settings
from bundlekeel.wiring.build import Build
from bundlekeel.wiring.outside import open_outside
from tests.support.threshold_cases import as_bytes, document


def loaded(tmp_path: Path, **given: Any) -> LoadedSettings:
    """Settings whose files lie in a folder of their own."""
    own = {"journal.path": None, "api.socket": None, "member_id": "m"}
    (tmp_path / "bundlekeel.yaml").write_text("metadata_store: zk:127.0.0.1:2181\n")
    return load_settings(tmp_path / "bundlekeel.yaml", own | given, environ={})


def made(given: LoadedSettings) -> Build:
    """A sidecar of these settings, nothing of it connected."""
    return Build(given, open_outside(given))


def test_everything_is_off_by_default() -> None:
    """Nothing is read, nobody plans along."""
    settings = LoadedSettings.defaults().settings
    assert (settings.calibration.mode, settings.calibration.uri, settings.shadow.strategies) == ("off", None, ())


@pytest.mark.parametrize(
    ("given", "field"),
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
def test_refusals(tmp_path: Path, given: dict[str, Any], field: str) -> None:
    """By key."""
    with pytest.raises(ConfigError, match=field.replace(".", r"\.")):
        loaded(tmp_path, **given)


async def test_off_is_what_it_was(tmp_path: Path) -> None:
    """No task, the settings' own parameters, and a view that says so."""
    built = made(loaded(tmp_path))
    assert built.shadow_strategies is None and built.effective_parameters.values == {}
    assert built.sidecar.thresholds.view().sentence == "calibration is off (calibration.mode)"
    assert built.cycle.params == built.effective_parameters.base


async def test_on_is_wired(tmp_path: Path) -> None:
    """A folder named relative to the settings file is read, and the strategies are there."""
    (tmp_path / "proposals/2026-09-15").mkdir(parents=True)
    (tmp_path / "proposals/2026-09-15/thresholds.json").write_bytes(as_bytes(document()))
    given = {"calibration.mode": "recommend", "calibration.uri": "proposals", "shadow.strategies": "threshold, uniform"}
    built = made(loaded(tmp_path, **given))
    assert built.shadow_strategies is not None
    await built.calibration.check()
    view = built.sidecar.thresholds.view()
    assert view.error == "" and view.document["values"] == {"avg_low_threshold_percent": 20.0}
    assert [row.parameter for row in view.changes] == ["avg_low_threshold_percent"]
    await built.calibration.close()
    await built.shadow_strategies.close()
