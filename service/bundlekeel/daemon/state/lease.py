"""A term as a value: its epoch, and until when its holder may act for it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to act in one term. `deadline`: seconds on the boot clock of this machine; renewing makes a new lease.

    The deadline counts from the moment the last confirmed request was *sent*: the store refreshed the session no
    earlier than that, so nobody else can lead before the deadline.
    """

    epoch: int
    deadline: float

    def remaining(self, boot: float) -> float:
        """Seconds left at this reading of the boot clock; 0 when it is over."""
        return max(0.0, self.deadline - boot)
