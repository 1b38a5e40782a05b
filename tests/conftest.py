"""For every suite: what a test sees depends on neither the terminal of whoever runs it nor how busy the machine is."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# pytest-xdist sets them in its workers; tables are as wide as these say.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

# An example that takes long on a busy machine says nothing about what it tests. The same examples every time: what a
# change broke is told from what was never so. Other examples are drawn at night (`--hypothesis-profile random`).
settings.register_profile("random", deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("steady", settings.get_profile("random"), derandomize=True)
settings.load_profile("steady")
