"""For every suite: what a test sees does not depend on the terminal of whoever runs it."""

from __future__ import annotations

import os

# pytest-xdist sets them in its workers; tables are as wide as these say.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)
