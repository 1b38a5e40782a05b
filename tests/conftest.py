"""For every suite: what a test sees depends on neither the terminal of whoever runs it nor how busy the machine is."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# pytest-xdist sets them in its workers; tables are as wide as these say.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

# An example that takes long on a busy machine says nothing about what it tests.
settings.register_profile("steady", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")
