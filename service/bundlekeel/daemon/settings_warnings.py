"""Settings that are allowed but hardly meant: told by `config check`, never refused."""

from __future__ import annotations

from bundlekeel.daemon.settings import Settings

_AVG = "avg"


def warnings_of(settings: Settings) -> list[str]:
    """One sentence each. AvgShedder is shedder and placement in one object: Pulsar refuses to start with half of it."""
    compat = settings.compat
    if settings.placement == _AVG and settings.strategy != _AVG:
        return [
            f"placement avg goes with strategy avg only, and the strategy is {settings.strategy}: bundles would be "
            "placed by the hash of their names, whatever the load; take least_resource_usage"
        ]
    if settings.strategy == _AVG and settings.placement != _AVG and compat != "none":
        return [
            f"strategy avg with compat {compat} needs placement avg as well: Pulsar's AvgShedder keeps the "
            f"destinations it chose in its placement, and {settings.placement} would choose others"
        ]
    if settings.strategy == "deviation" and compat != "none":
        return [f"Pulsar ships no class for strategy deviation: compat {compat} changes nothing about it"]
    return []
