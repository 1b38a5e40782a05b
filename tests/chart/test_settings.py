"""Every settings file the chart renders is one the sidecar takes, and says what the values said."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from bundlekeel.cli.config import config_app
from bundlekeel.settings.load import LoadedSettings, load_settings
from dev.chart import CHART
from tests.support.chart import CASES, pods, settings_of

WRITABLE = ("/run/bundlekeel", "/var/lib/bundlekeel", "/tmp", "/history")


def _loaded(case: str, folder: Path) -> LoadedSettings:
    file = folder / "settings.yaml"
    file.write_text(settings_of(case), encoding="utf-8")
    return load_settings(file, environ={}, secrets_dir=_secrets(case, folder))


def _secrets(case: str, folder: Path) -> Path | None:
    """The folder that the pod's environment names, as Kubernetes fills it; None when it names none."""
    pod = next(pods(case), None)
    assert pod is not None
    named = [item["value"] for item in pod.containers[0]["env"] if item["name"] == "BUNDLEKEEL_SECRETS_DIR"]
    if not named:
        return None
    (mounted,) = [mount["name"] for mount in pod.containers[0]["volumeMounts"] if mount["mountPath"] == named[0]]
    volume = next(volume for volume in pod.spec["volumes"] if volume["name"] == mounted)
    secrets = folder / "secrets"
    secrets.mkdir(exist_ok=True)
    for item in volume["secret"]["items"]:
        (secrets / item["path"]).write_text("hunter2", encoding="utf-8")
    return secrets


@pytest.mark.parametrize("case", CASES)
def test_config_check_takes_it(case: str, tmp_path: Path) -> None:
    """The command itself accepts the file. Its only warning is about an API without credentials."""
    file = tmp_path / "settings.yaml"
    file.write_text(settings_of(case), encoding="utf-8")
    secrets = _secrets(case, tmp_path)
    environment = {"BUNDLEKEEL_SECRETS_DIR": str(secrets)} if secrets else {}
    answer = CliRunner(env=environment).invoke(config_app, ["check", "--elsewhere", str(file)])
    assert answer.exit_code == 0, answer.output
    authentication = "auth" in yaml.safe_load(file.read_text(encoding="utf-8"))["api"]
    assert answer.stdout == "ok\n"
    assert (
        answer.stderr.count("warning: ") == answer.stderr.count("warning: api.auth.tokens_file") == (not authentication)
    )


@pytest.mark.parametrize("case", CASES)
def test_it_contends_for_at_most_three_seats_and_writes_where_it_may(case: str, tmp_path: Path) -> None:
    """Everything the sidecar writes is below a mounted folder: its own file system is read-only."""
    settings = _loaded(case, tmp_path).settings
    assert settings.leadership.seats <= 3
    written = [settings.api.socket, settings.journal.path, *([settings.history.wal] if settings.history.uri else [])]
    for path in written:
        assert path is not None
        assert str(path).startswith(WRITABLE), path
    assert settings.logging.format == "json"


def test_modes_are_those_of_the_values(tmp_path: Path) -> None:
    """Nothing acts that was not told to."""
    modes = {case: _loaded(case, tmp_path).settings.mode for case in CASES}
    assert {case for case, mode in modes.items() if mode == "act"} == {"jwt-tls"}
    assert set(modes.values()) == {"act", "recommend"}


def test_jwt_and_tls(tmp_path: Path) -> None:
    """The files are re-read when they change."""
    settings = _loaded("jwt-tls", tmp_path).settings
    assert str(settings.admin.token_file) == "/run/secrets/bundlekeel/token/token"
    assert settings.admin.prefer_tls
    assert settings.store.tls
    assert settings.store.sasl_username == "bundlekeel"
    assert settings.store.sasl_password is not None
    assert "hunter2" not in settings_of("jwt-tls")
    assert str(settings.admin.tls_trust_certs_file) == str(settings.store.tls_trust_certs_file)
    assert str(settings.api.auth.tokens_file) == "/run/secrets/bundlekeel/auth/tokens"
    assert settings.api.tls.client_ca_file is not None


def test_settings_of_the_values_win_and_the_rest_stays(tmp_path: Path) -> None:
    """`settings` reaches every key the chart does not name, below sections it does name as well."""
    settings = _loaded("extensible", tmp_path).settings
    assert settings.strategy == "transfer"
    assert settings.parameters["transfer_max_brokers"] == 2
    assert settings.logging.level == "debug"
    assert settings.logging.format == "json"
    assert settings.configuration_store == "zk:pulsar-cs-zookeeper:2181/configuration"


def test_history_and_calibration(tmp_path: Path) -> None:
    """The job writes where the sidecars look."""
    local = _loaded("history-recalibrate", tmp_path).settings
    assert (local.history.uri, local.calibration.uri, local.calibration.mode) == (
        "/history",
        "/history/calibration",
        "recommend",
    )
    remote = _loaded("spark-kubernetes", tmp_path).settings
    assert (remote.calibration.uri, remote.calibration.mode) == ("s3://pulsar-history/calibration", "adopt")
    assert remote.notify.kubernetes == "auto"


def test_compose_settings_are_taken() -> None:
    file = CHART.parent.parent / "compose" / "sidecar" / "settings.yaml"
    answer = CliRunner().invoke(config_app, ["check", "--elsewhere", str(file)])
    assert answer.exit_code == 0, answer.output
    settings = load_settings(file, environ={}).settings
    hosts = yaml.safe_load(file.read_text(encoding="utf-8"))["api"]["allowed_hosts"]
    assert list(settings.api.allowed_hosts) == hosts == ["sidecar-1", "sidecar-2", "sidecar-3"]
