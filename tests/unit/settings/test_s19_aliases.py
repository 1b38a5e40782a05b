"""S.19: aliases of YAML, which cost nothing until their values are looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from bundlekeel.settings.load import load_settings
from bundlekeel.settings.problems import ConfigErrors


@pytest.mark.timeout(20)
@pytest.mark.parametrize("deep", ["mapping", "list"])
def test_s19_aliases_do_not_hang(tmp_path: Path, deep: str) -> None:
    """Thirty lines that stand for a billion values; an alias that is used a few times is fine."""
    form = "{{x: *a{0}, y: *a{0}}}" if deep == "mapping" else "[*a{0}, *a{0}]"
    lines = ["a0: &a0 {x: 1}", *(f"a{n + 1}: &a{n + 1} {form.format(n)}" for n in range(30))]
    file = tmp_path / "config.yaml"
    file.write_text("\n".join(lines))
    with pytest.raises(ConfigErrors, match="more than 100,000 values once each alias"):
        load_settings(file, environ={})
    with pytest.raises(ConfigErrors, match="not JSON"):
        load_settings(None, environ={"BUNDLEKEEL__CAPACITY": "{" + ", ".join(lines) + "}"})
