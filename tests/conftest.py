"""For every suite: what a test sees depends on neither the terminal of whoever runs it nor how busy the machine is."""

from __future__ import annotations

import os

import pytest
import structlog
from hypothesis import HealthCheck, settings

# pytest-xdist sets them in its workers; tables are as wide as these say.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

# As the product has it: rich's tracebacks, which structlog takes where nobody chose, cost seconds and show variables.
structlog.configure(processors=[structlog.processors.format_exc_info, structlog.dev.ConsoleRenderer()])

# An example that takes long on a busy machine says nothing about what it tests. "quick" draws the same examples every
# time: what a change broke is told from what was never so. The night draws others, and six times as many
# (`--hypothesis-profile random`). Tests name a number of their own only where an example costs much.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=300)
settings.register_profile("quick", settings.get_profile("random"), derandomize=True, max_examples=50)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--shard 1/4`: the first of four parts, each of which has every fourth test by name."""
    parser.addoption("--shard", default="1/1", metavar="PART/PARTS", help="run one of so many parts of the tests")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the other parts out."""
    part, parts = map(int, config.getoption("--shard").split("/"))
    mine = set(sorted(item.nodeid for item in items)[part - 1 :: parts])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in mine])
    items[:] = [item for item in items if item.nodeid in mine]
