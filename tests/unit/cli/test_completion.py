"""The shell's completion, asked as a shell asks it: by `_BUNDLEKEEL_COMPLETE` and the words typed so far."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.apps import make_app
from tests.support.fake_wiring import FakeWiring
from tests.support.shop import BROKERS, BUNDLE
from tests.unit.cli.test_commands import Sidecar, served, sidecar

__all__ = ["served", "sidecar"]


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sidecar of this machine."""
    for name in ("BUNDLEKEEL_URL", "BUNDLEKEEL_SOCKET", "BUNDLEKEEL_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def completed(line: str) -> list[str]:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_BUNDLEKEEL_COMPLETE": "complete_bash"}
    return CliRunner().invoke(make_app(FakeWiring), [], env=words, prog_name="bundlekeel").stdout.split()


def test_names_of_the_cluster(sidecar: Sidecar) -> None:
    """Brokers, bundles and namespaces come from the sidecar that the line names."""
    where = f"--socket {sidecar.socket}"
    assert completed(f"bundlekeel drain {where} b")[:3] == list(BROKERS)
    assert BUNDLE.rpartition("/")[0] in completed(f"bundlekeel bundles {where} --namespace shop/")
    assert BUNDLE in completed(f"bundlekeel pin {where} shop/orders/0x0000")
    assert completed(f"bundlekeel pin {where} nothing/like/it") == []


def test_names_of_the_program() -> None:
    """Scenarios, strategies and parameters need no sidecar."""
    assert "transfer" in completed("bundlekeel plan --strategy t")
    assert "threshold_percent=" in completed("bundlekeel plan --set threshold")
    assert "01-idle-broker" in completed("bundlekeel simulate 01")


def test_without_a_sidecar_nothing_is_said(tmp_path: Path) -> None:
    """A message would land in the line that is typed."""
    assert completed(f"bundlekeel drain --socket {tmp_path}/none b") == []
