"""What stops everything right now, whatever people and brokers are set to: asked in each cycle and before each move."""

from __future__ import annotations

from collections.abc import Callable

from bundlekeel.core.codes import Code
from bundlekeel.daemon.acting import Obstacle
from bundlekeel.daemon.takeover_record import Record
from bundlekeel.ports import Picture

Stop = Callable[[Picture | None], Obstacle | None]


def put_aside(record: Record | None) -> Obstacle | None:
    """The dead man ended the last takeover: nobody acts before a person takes over anew.

    That the brokers shed again would stop us too (BrokersShedThemselves), but not where they did not shed before.
    """
    if record is None or record.active or record.ended is None or not record.ended.deadman:
        return None
    return Obstacle(code=Code.PUT_ASIDE, detail=f"{record.ended.by}: {record.ended.reason}")


class Stops:
    """The first of several reasons, or None."""

    def __init__(self, *stops: Stop) -> None:
        self._stops = stops

    def __call__(self, picture: Picture | None = None) -> Obstacle | None:
        """With the picture that is about to be acted on, when there is one."""
        return next((found for stop in self._stops if (found := stop(picture)) is not None), None)
