"""Registration of the optional feature `compat`, which adds the command `bundlekeel decide`."""

from __future__ import annotations

from bundlekeel.cli.app import CommandModule
from bundlekeel.wiring.feature import Feature


class Compat(Feature):
    """Feature with the command `decide`, which runs copies of Pulsar's shedders, or Bundlekeel's own, on JSON lines."""

    name = "compat"
    commands = (CommandModule("Offline", "compat.decide", "decide", plans=True),)


FEATURE = Compat()
