"""Settings of history, calibration and shadow strategies: refusals, warnings, and what the wiring makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from bundlekeel.cli.config import config_app
from bundlekeel.model.errors import ConfigError
from bundlekeel.recalibration.jobs.__main__ import parser
from bundlekeel.recalibration.recorder.wiring import history_store
from bundlekeel.recalibration.settings import CalibrationSettings, HistorySettings, ShadowSettings
from bundlekeel.recalibration.wiring import RecalibrationParts
from bundlekeel.settings.describe import shared_digest
from bundlekeel.settings.load import LoadedSettings, load_settings
from bundlekeel.wiring.outside import open_outside
from bundlekeel.wiring.serving import Serving
from bundlekeel.wiring.sidecar import sidecar
from tests.support.threshold_cases import as_bytes, document
from tests.unit.settings.test_settings import problems
from tests.unit.settings.test_warnings import warned


def invoke(*arguments: str) -> Any:
    """Run `bundlekeel config`."""
    return CliRunner().invoke(config_app, list(arguments))


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
    assert settings.section(CalibrationSettings).mode == "off"
    assert settings.section(HistorySettings).uri is None and settings.section(ShadowSettings).strategies == ()


def test_off_needs_no_quotes(tmp_path: Path) -> None:
    """YAML reads it as false."""
    file = tmp_path / "c.yaml"
    file.write_text("calibration: {mode: off}")
    assert load_settings(file, environ={}).settings.section(CalibrationSettings).mode == "off"


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
        ({"calibration.trial_namespaces": ["shop"]}, "calibration.trial_namespaces"),
        ({"shadow.strategies": ["nobody"]}, "shadow.strategies"),
        ({"shadow.strategies": ["avg", "avg"]}, "shadow.strategies"),
    ],
)
def test_refusals(tmp_path: Path, options: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=field.replace(".", r"\.")):
        loaded(tmp_path, **options)


@pytest.mark.parametrize(
    ("options", "uri"),
    [
        ({"calibration.mode": "recommend", "history.uri": "h"}, "h/calibration"),
        ({"calibration.mode": "adopt", "history.uri": "s3://b/x/"}, "s3://b/x/calibration"),
        ({"calibration.mode": "adopt", "history.uri": "h", "calibration.uri": "c"}, "c"),
        ({"calibration.mode": "off", "history.uri": "h"}, None),
        ({"calibration.mode": "adopt", "calibration.uri": "c"}, "c"),
    ],
)
def test_proposals_are_below_the_history_by_default(tmp_path: Path, options: dict[str, Any], uri: str | None) -> None:
    """So the settings that record history need only one value more."""
    settings = loaded(tmp_path, **options)
    assert settings.value("calibration.uri") == settings.settings.section(CalibrationSettings).uri == uri


def test_namespaces_of_a_first_stage_may_be_one_text(tmp_path: Path) -> None:
    section = loaded(tmp_path, **{"calibration.trial_namespaces": "shop/orders, dev/*"}).settings.section(
        CalibrationSettings
    )
    assert section.trial_namespaces == ("shop/orders", "dev/*")


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
    (tmp_path / "proposals/2026-09-15T020000Z").mkdir(parents=True)
    (tmp_path / "proposals/2026-09-15T020000Z/thresholds.json").write_bytes(as_bytes(document()))
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
    ("text", "field", "expected"),
    [
        ("history: {url: /x}", "history.url", "did you mean 'uri'?"),
        ("keep_days: 3", "keep_days", "did you mean 'history.keep_days'?"),
        ("strategies: avg", "strategies", "did you mean 'strategy' or 'shadow.strategies'?"),
        (
            "calibration: {mode: adopt}",
            "calibration.uri",
            "calibration.mode is adopt, but neither history.uri nor calibration.uri is set (allowed: history.uri",
        ),
        ("history: {uri: 's3//b'}", "history.uri", "neither a folder nor a URI with ://"),
        ("history: {uri: 's4://b'}", "history.uri", "uri = 's4://b': the scheme 's4' is not known"),
        ("calibration: {uri: 's3a://b'}", "calibration.uri", "(allowed: a folder, or one of the schemes file, s3,"),
    ],
)
def test_refusals_give_the_field_and_the_remedy(tmp_path: Path, text: str, field: str, expected: str) -> None:
    (error,) = problems(tmp_path, text)
    assert error.field == field and expected in str(error)


@pytest.mark.parametrize(("strategies", "status"), [(["avg", "threshold"], 1), (["threshold"], 0)])
def test_a_shadow_of_the_strategy_in_force(strategies: list[str], status: int) -> None:
    """It is compared with itself."""
    assert warned({"strategy": "avg", "shadow.strategies": strategies}) == status * [
        "shadow.strategies: avg is the strategy in force, and would be compared with itself (better: other strategies)"
    ]


@pytest.mark.parametrize(("uri", "wal", "status"), [("h", "./h/", 1), ("file:///h", "/h", 1), ("h", "w", 0)])
def test_history_in_the_folder_of_what_is_not_published(uri: str, wal: str, status: int) -> None:
    """The one is of all sidecars, the other of one of them, which locks it."""
    assert warned({"history": {"uri": uri, "wal": wal}}) == status * [
        f"history.uri = '{uri}': the same folder as history.wal, which each sidecar needs for itself "
        "(better: a folder for all sidecars)"
    ]


@pytest.mark.parametrize(
    ("options", "messages"),
    [
        ({"compat": "4.2", "shadow.strategies": ["threshold", "avg"]}, ["threshold"]),
        ({"adopt_broker_settings": True, "shadow.strategies": ["threshold", "avg"]}, []),
        ({"adopt_broker_settings": True, "strategy": "avg", "shadow.strategies": ["avg"]}, ["avg"]),
    ],
)
def test_a_shadow_of_a_strategy_that_is_not_written(options: dict[str, Any], messages: list[str]) -> None:
    """`compat` brings Pulsar's default, and what the brokers run is not known here."""
    assert [text.split()[1] for text in warned(options) if text.startswith("shadow.")] == messages


def test_a_file_in_the_place_of_the_local_folder(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("cluster: c\nmetadata_store: zk:127.0.0.1:2181\nhistory: {wal: c.yaml}\n")
    bad = invoke("check", str(file))
    assert (bad.exit_code, bad.stdout) == (2, "")
    assert bad.stderr == (
        f"error: file:{file}:3: history.wal = 'c.yaml': {file} is there already and is not a folder "
        "(allowed: a path that is free, or a folder)\n"
    )


def test_folders_of_stores_that_are_missing_are_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    stores = f"history: {{uri: file://{tmp_path}/h}}\ncalibration: {{uri: cal}}\n"
    file.write_text(f"cluster: c\nmetadata_store: zk:127.0.0.1:2181\n{stores}")
    told = invoke("check", str(file)).stderr.splitlines()
    assert [line.partition(" does not exist")[0].partition(": the")[2] for line in told] == [
        f" folder {tmp_path / 'h'}",
        f" folder {tmp_path / 'cal'}",
    ]
    (tmp_path / "h").mkdir()
    file.write_text("cluster: c\nmetadata_store: zk:127.0.0.1:2181\nhistory: {uri: h}\n")
    assert invoke("check", str(file)).stderr == ""
    assert invoke("check", str(file), "--elsewhere").stderr == ""


def test_the_local_folder_may_differ_between_sidecars() -> None:
    """So it is not in the digest of what they have in common; the store is."""

    def digest(**history: str) -> str:
        return shared_digest(load_settings(None, {"history": history}, environ={}).settings)

    assert digest(wal="a") == digest() != digest(uri="a")


WITH_SECRET = "s3://AKIA:canary-1@bucket"


@pytest.mark.parametrize("section", ["history", "calibration"])
def test_h09_settings_refuse_credentials_by_the_fields_name(section: str) -> None:
    """And neither message nor value repeats them."""
    with pytest.raises(ConfigError) as caught:
        load_settings(None, {section: {"uri": WITH_SECRET}}, environ={})
    assert caught.value.field == f"{section}.uri" and "credentials" in str(caught.value)
    text = f"{caught.value} {caught.value.value}"
    assert "canary" not in text and "AKIA" not in text


def test_h09_the_command_lines_refuse_credentials(capsys: pytest.CaptureFixture[str]) -> None:
    """History of the CLI, history and output of the nightly job."""
    with pytest.raises(ConfigError, match="--history") as caught:
        history_store(LoadedSettings.defaults(), WITH_SECRET)
    assert "canary" not in f"{caught.value} {caught.value.value}"
    for option in ("--history", "--out"):
        with pytest.raises(SystemExit):
            parser().parse_args([option, WITH_SECRET])
        err = capsys.readouterr().err
        assert f"argument {option}" in err and "credentials" in err and "canary" not in err
