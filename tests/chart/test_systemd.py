"""The units of deploy/systemd, as systemd itself reads them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bundlekeel.settings.load import load_settings
from dev.chart import ROOT

FOLDER = ROOT / "deploy" / "systemd"
PAGE = ROOT / "docs" / "operations" / "systemd.md"
UNITS = ("bundlekeel", "bundlekeel-deadman")
# Of ten; systemd rates a value below 4 as well protected.
EXPOSURE = 2.0
CONFINING = re.compile(r"(?:UMask|NoNew|Capability|Protect|Private|Restrict|Lock|SystemCall)\w*=.*")


def _lines(unit: str) -> list[str]:
    return (FOLDER / f"{unit}.service").read_text(encoding="utf-8").splitlines()


def _analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_takes_the_unit(unit: str, tmp_path: Path) -> None:
    """With a program that is there; ours is installed elsewhere."""
    text = "\n".join(_lines(unit)).replace("/opt/bundlekeel/current/bin/bundlekeel", "/bin/true")
    (tmp_path / f"{unit}.service").write_text(text, encoding="utf-8")
    answer = _analyze("verify", "--man=no", str(tmp_path / f"{unit}.service"))
    assert (answer.returncode, answer.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS)
def test_little_is_exposed(unit: str) -> None:
    """systemd's own rating is low."""
    answer = _analyze("security", "--offline=yes", f"--threshold={EXPOSURE * 10:.0f}", str(FOLDER / f"{unit}.service"))
    assert answer.returncode == 0, answer.stdout.splitlines()[-1]


def test_the_failsafe_is_confined_as_the_sidecar_is() -> None:
    """It holds the same token. It writes nothing, so that it needs no folder."""
    sidecar, failsafe = ([line for line in _lines(unit) if CONFINING.fullmatch(line)] for unit in UNITS)
    assert failsafe == sidecar
    assert "SystemCallFilter=@system-service" in sidecar
    for unit in UNITS:
        assert any(line.startswith("MemoryMax=") for line in _lines(unit))
    assert not any(line.startswith("StateDirectory") for line in _lines("bundlekeel-deadman"))


def test_the_settings_keep_to_the_folders_of_the_unit() -> None:
    """The unit makes all other folders read-only."""
    settings = load_settings(FOLDER / "bundlekeel.yaml", environ={}).settings
    folders = dict(line.split("=") for line in _lines("bundlekeel") if re.match(r"(State|Runtime)Directory=", line))
    state, runtime = Path("/var/lib", folders["StateDirectory"]), Path("/run", folders["RuntimeDirectory"])
    assert settings.journal.path is not None and settings.journal.path.parent == settings.history.wal.parent == state
    assert settings.api.socket is not None and settings.api.socket.parent == runtime


def test_the_page_takes_out_all_of_the_credential(tmp_path: Path) -> None:
    """A secrets directory that is not there keeps a sidecar from starting as a missing credential does."""
    for unit in UNITS:
        shutil.copy(FOLDER / f"{unit}.service", tmp_path)
    (command,) = re.findall(r"^ *(sed -i .*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    subprocess.run(["bash", "-c", command.replace("/etc/systemd/system", str(tmp_path))], check=True)
    for unit in UNITS:
        left = (tmp_path / f"{unit}.service").read_text(encoding="utf-8").splitlines()
        assert left == [line for line in _lines(unit) if "LoadCredential" not in line and "SECRETS_DIR" not in line]
        assert len(left) == len(_lines(unit)) - 2
