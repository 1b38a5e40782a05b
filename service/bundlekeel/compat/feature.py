"""The copies of Pulsar's own shedders as a feature of the sidecar: the command `decide`."""

from __future__ import annotations

from bundlekeel.cli.app import CommandModule
from bundlekeel.wiring.feature import Feature


class Compat(Feature):
    """Decisions for one input, by Pulsar's own shedders or by the corrected ones."""

    name = "compat"
    commands = (CommandModule("Offline", "compat.decide", "decide", plans=True),)


FEATURE = Compat()
