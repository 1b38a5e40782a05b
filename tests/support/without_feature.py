"""`python -m tests.support.without_feature SECTION...`: use a sidecar in which a feature may be deleted.

Prints the observations as one line of JSON, after the log. tests/unit/wiring/test_features.py runs it on a copy.
"""

from __future__ import annotations

import asyncio
import json
import pkgutil
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from typer.testing import CliRunner

import bundlekeel
from bundlekeel.model.errors import ConfigError
from bundlekeel.settings.load import load_settings
from bundlekeel.wiring.features import installed
from bundlekeel.wiring.openapi import openapi_document
from tests.support.apps import make_app
from tests.support.world import FakeCluster, FakeSidecar


def import_all() -> list[str]:
    """Import every module, and return their names."""
    names = [item.name for item in pkgutil.walk_packages(bundlekeel.__path__, "bundlekeel.")]
    # The main modules of the program and of the jobs run a command.
    modules = [name for name in names if not name.endswith("__main__")]
    for name in modules:
        import_module(name)
    return modules


def rejected(section: str) -> str:
    """Return the error of a setting in a section; "": it is allowed."""
    try:
        load_settings(None, {f"{section}.x": "1"}, environ={})
    except ConfigError as error:
        return str(error)
    return ""


async def cycle() -> Mapping[str, Any]:
    """Run a cycle of a sidecar that leads, and return the names of its tasks and services, and its moves."""
    sidecar = await FakeSidecar(FakeCluster()).lead()
    await sidecar.cycle.turn()
    tasks = [task.name for task in sidecar.serving.requests.leading.features.tasks]
    return {"tasks": tasks, "services": list(sidecar.service.features), "moves": sidecar.moves()}


def main(sections: list[str]) -> None:
    """Print the observations. `sections`: of the settings, to be tried."""
    seen = {
        "modules": import_all(),
        "features": [item.name for item in installed()],
        "rejected": {section: rejected(section) for section in sections},
        "help": CliRunner(env={"COLUMNS": "200"}).invoke(make_app(None), ["--help"]).stdout,
        "paths": list(openapi_document()["paths"]),
        **asyncio.run(cycle()),
    }
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
