"""The simulator as a feature of the sidecar: the command `simulate`."""

from __future__ import annotations

from bundlekeel.cli.app import CommandModule
from bundlekeel.wiring.feature import Feature


class Simulator(Feature):
    """A virtual Pulsar cluster, balanced in virtual time."""

    name = "simulator"
    commands = (CommandModule("Offline", "simulator.simulate", "simulate", plans=True),)


FEATURE = Simulator()
