"""For every suite: what a test sees depends on neither the terminal of whoever runs it nor how busy the machine is."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# pytest-xdist sets them in its workers; tables are as wide as these say.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)

# An example that takes long on a busy machine says nothing about what it tests. "quick" draws the same examples every
# time: what a change broke is told from what was never so. The night draws others, and six times as many
# (`--hypothesis-profile random`). Tests name a number of their own only where an example costs much.
settings.register_profile("random", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=300)
settings.register_profile("quick", settings.get_profile("random"), derandomize=True, max_examples=50)
settings.load_profile("quick")
