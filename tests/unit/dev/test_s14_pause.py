"""The documentation states how long an unload can still reach its broker after a pause."""

from __future__ import annotations

import re
from pathlib import Path

from bundlekeel.settings.load import LoadedSettings

ROOT = Path(__file__).resolve().parents[3]


def test_s14_pages_state_the_bound_of_a_pause() -> None:
    """Requests that were sent before cannot be called back: a second or two is the time until no new one is sent."""
    bound = f"{LoadedSettings.defaults().settings.admin.read_timeout:.0f} s"
    promises = {
        path.relative_to(ROOT): line
        for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"bundlekeel pause\b.*within", line)
    }
    assert len(promises) >= 2
    assert not {path for path, line in promises.items() if bound not in line}
