"""`requirements/demo.lock` is all that `make demo` installs on a fresh machine: it must hold all that it imports."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)(?: ; ([^\\]+))?", re.MULTILINE)


def _pins(lock: str) -> dict[str, str]:
    """Name to version, of the lines that hold for this Python and system."""
    text = (ROOT / "requirements" / f"{lock}.lock").read_text(encoding="utf-8")
    result = [
        (Requirement(f"{name}; {marker}" if marker else name), version)
        for name, version, marker in PINNED.findall(text)
    ]
    return {
        canonicalize_name(line.name): version for line, version in result if not line.marker or line.marker.evaluate()
    }


def _asked_for() -> list[Requirement]:
    """Return the input of `make lock` for demo.lock: the dependencies, the extra `topics` and the group `demo`."""
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lines = project["project"]["dependencies"] + project["project"]["optional-dependencies"]["topics"]
    return [Requirement(line) for line in [*lines, *project["dependency-groups"]["demo"]]]


def _missing(pins: dict[str, str], requirements: list[Requirement]) -> set[str]:
    """Names that a package asks for, or one that it asks for, and that are not pinned as asked."""
    missing, names, queue = set(), set(), [(line, "") for line in requirements]
    while queue:
        line, extra = queue.pop()
        name = canonicalize_name(line.name)
        if (line.marker and not line.marker.evaluate({"extra": extra})) or (name, *sorted(line.extras)) in names:
            continue
        names.add((name, *sorted(line.extras)))
        if name not in pins or not line.specifier.contains(pins[name], prereleases=True):
            missing.add(name)
            continue
        try:
            needed = [Requirement(text) for text in requires(name) or []]
        except PackageNotFoundError:  # an environment that has the demo's packages only
            continue
        queue += [(other, extra) for other in needed for extra in ("", *line.extras)]
    return missing


def test_the_demo_installs_all_that_the_service_imports() -> None:
    pins = _pins("demo")
    assert _missing(pins, _asked_for()) == set()
    assert "pyarrow" not in pins


@pytest.mark.parametrize("name", ["google-re2", "httpcore", "uvicorn"])
def test_a_lock_without_one_is_noticed(name: str) -> None:
    """A dependency of ours, and one of a dependency."""
    pins = _pins("demo")
    del pins[name]
    assert _missing(pins, _asked_for()) == {name}


def test_the_demo_has_the_versions_that_the_tests_have() -> None:
    """The tests add to the same environment."""
    tested = _pins("dev")
    assert {name: version for name, version in _pins("demo").items() if tested.get(name) != version} == {}


def test_make_lock_keeps_it_so() -> None:
    """The line that makes it reads the dependencies, the extra and the group that are read above."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (line,) = [text for text in makefile.splitlines() if text.endswith("-o requirements/demo.lock")]
    assert "uv pip compile pyproject.toml --extra topics --group demo -c requirements/dev.lock" in line
