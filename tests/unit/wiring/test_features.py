"""A feature is deleted in a copy, and everything else still works."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from bundlekeel.settings.features import FEATURES

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Cut:
    """A feature, and what disappears with it. `tests`: beginnings of the names of other tests that use it."""

    feature: str
    sections: tuple[str, ...]
    commands: tuple[str, ...]
    paths: str
    tasks: tuple[str, ...]
    tests: tuple[str, ...]


WRONG_OPTIONS = "tests/unit/cli/test_wrong_options.py"
# Tests that compare committed pages and sources, which name the features, with the code.
COMMITTED = (
    "tests/unit/cli/test_printed_commands.py::test_every_printed_command_is_accepted",
    "tests/unit/api/test_code_lists.py::test_every_code_of_an_example_is_in_the_list_of_its_field",
    "tests/unit/api/test_openapi.py::test_every_refusal_of_the_api_has_a_code_that_the_document_knows",
)
CUTS = (
    Cut(
        feature="quotas",
        sections=("quotas",),
        commands=("quota",),
        paths="/api/v1/quotas",
        tasks=("quotas",),
        tests=(
            "tests/unit/api/test_routes.py::test_what_is_not_here_is_said_with_where_it_is",
            "tests/unit/cli/test_commands.py::test_at_80_columns_no_name_is_torn[quota",
            "tests/unit/cli/test_tls.py::test_peers_show_certificate_and_token",
            f"{WRONG_OPTIONS}::test_a_command_that_is_not_there_is_told_the_nearest_ones_or_all[quota",
            f"{WRONG_OPTIONS}::test_a_value_is_checked_before_a_sidecar_is_asked[quota",
            f"{WRONG_OPTIONS}::test_wrong_usage_is_one_line[quota",
            "tests/unit/requests/test_doctor.py::test_documents_that_cannot_be_read_are_named",
            "tests/unit/requests/test_doctor.py::test_what_the_brokers_had_before_is_not_to_be_deleted[quotas",
            "tests/unit/settings/test_command.py::TestCommand::test_show_what_differs_from_the_defaults",
            "tests/unit/settings/test_sections.py::test_off_needs_no_quotes_where_it_is_allowed[quotas",
            "tests/unit/settings/test_settings.py::TestRefusals::test_one_mistake[quotas",
        ),
    ),
    Cut(
        feature="recalibration",
        sections=("history", "calibration", "shadow"),
        commands=("history", "replay", "thresholds"),
        paths="/api/v1/thresholds",
        tasks=("history", "calibration", "shadow"),
        tests=(
            "tests/unit/api/test_s01_reads_and_the_lease.py::test_s01_reads_are_answered_while_the_main_loop_is_silent",
            "tests/unit/cli/test_printed_commands.py::test_the_help_ends_with_examples[history",
            f"{WRONG_OPTIONS}::test_a_command_that_is_not_there_is_told_the_nearest_ones_or_all[history",
            f"{WRONG_OPTIONS}::test_an_empty_text_is_named_and_refused[thresholds",
        ),
    ),
)


def copy_without(feature: str, folder: Path) -> dict[str, str]:
    """Copy the sources without a feature, and return an environment that imports them."""
    shutil.copytree(ROOT / "service", folder / "service", ignore=shutil.ignore_patterns("__pycache__", feature))
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder / "service"), str(folder), str(ROOT)))}


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.feature)
def test_the_rest_works_without_a_feature(cut: Cut, tmp_path: Path) -> None:
    """All modules, settings, the help, the API, and a sidecar that leads and moves bundles."""
    environment = copy_without(cut.feature, tmp_path)
    command = [sys.executable, "-m", "tests.support.without_feature", *cut.sections]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    seen = json.loads(ran.stdout.splitlines()[-1])
    assert "bundlekeel.wiring.sidecar" in seen["modules"]
    assert not [name for name in seen["modules"] if name.startswith(f"bundlekeel.{cut.feature}")]
    assert seen["features"] == [name for name in FEATURES if name != cut.feature]
    for section, error in seen["rejected"].items():
        assert error.startswith(f"cli: {section}: unknown key"), error
    words = [line.split()[1] for line in seen["help"].splitlines() if len(line.split()) > 1]
    assert "status" in words and not set(cut.commands) & set(words)
    assert "/api/v1/state" in seen["paths"] and not [path for path in seen["paths"] if path.startswith(cut.paths)]
    assert not set(cut.tasks) & set(seen["tasks"]) and cut.feature not in seen["services"]
    assert seen["moves"] and all(move.endswith(" done") for move in seen["moves"])


@cache
def imports_of(file: Path) -> frozenset[str]:
    """Return the modules that a file imports when it is imported itself."""
    return frozenset(_imports(ast.parse(file.read_text(encoding="utf-8")).body))


def _imports(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.Import):
            yield from (item.name for item in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{item.name}" for item in node.names)


def needs(file: Path, feature: str, above: frozenset[Path] = frozenset()) -> bool:
    """Return whether a file imports a feature, directly or through modules of tests, dev and evidence."""
    package = f"bundlekeel.{feature}"
    if any(name == package or name.startswith(f"{package}.") for name in imports_of(file)):
        return True
    sources = (ROOT.joinpath(*name.split(".")).with_suffix(".py") for name in imports_of(file))
    return any(needs(source, feature, above | {file}) for source in sources if source.exists() and source not in above)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: cut.feature)
def test_the_tests_of_the_rest_pass_without_a_feature(cut: Cut, tmp_path: Path) -> None:
    """All tests that do not use the feature or compare committed pages and sources with the code."""
    environment = copy_without(cut.feature, tmp_path)
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    for entry in ROOT.iterdir():
        if not (tmp_path / entry.name).exists():
            (tmp_path / entry.name).symlink_to(entry)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/unit", *left_out(cut)]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-20_000:]


def left_out(cut: Cut) -> list[str]:
    """Return the options of pytest that leave out the tests of a feature, of committed pages, and of this module."""
    files = sorted((ROOT / "tests/unit").rglob("test_*.py"))
    importers = [str(path.relative_to(ROOT)) for path in files if needs(path, cut.feature)]
    # The test of mutations copies the repository with git, which takes no symbolic links.
    paths = [f"tests/unit/{cut.feature}", "tests/unit/dev", "tests/unit/evidence/test_mutation.py", *importers]
    paths.append("tests/unit/wiring/test_features.py")
    names = (*COMMITTED, *cut.tests)
    return ["-k", "not drift", *(f"--ignore={path}" for path in paths), *(f"--deselect={name}" for name in names)]
