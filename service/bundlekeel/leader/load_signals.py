"""Signals of changed traffic: sidecars in brokers' pods send them, and the leader then reads the brokers' counters.

A signal has no content. The leader limits how often it follows one (`LiveLoads.alarm`), so false signals cost little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import structlog

from bundlekeel.leader.state.leadership import Leadership
from bundlekeel.model.doc import Answer, Doc
from bundlekeel.model.errors import StoreError
from bundlekeel.ports import Peers, Telemetry
from bundlekeel.pulsar.counters.counters import LiveLoads

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalView(Answer):
    """The result of a signal of changed traffic."""

    reads: Annotated[bool, Doc("whether the leader reads counters early; false: it did recently, or does not lead")]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSignals:
    """Sends signals to the leader, and follows received ones. `live`: reads counters; None: the settings forbid it."""

    leadership: Leadership
    peers: Peers
    live: LiveLoads | None
    telemetry: Telemetry

    async def send(self) -> None:
        """Send a signal to the leader, or follow it if this sidecar leads. Never raises StoreError."""
        if self.leadership.leading:
            self.receive()
            return
        leader, error = self.leadership.other_leader, "no leader is known"
        if leader is not None:
            try:
                await self.peers.signal_load(leader.url)
            except StoreError as fault:
                error = str(fault)
            else:
                self.telemetry.count("load_signals_total", result="sent")
                return
        _log.info("signal of changed traffic could not be sent", error=error)
        self.telemetry.count("load_signals_total", result="failed")

    def receive(self) -> SignalView:
        """Read the brokers' counters early, unless they were read early recently or this sidecar does not lead."""
        reads = self.live is not None and self.leadership.leading and self.live.alarm()
        if reads:
            _log.info("traffic changed: counters are read early")
        self.telemetry.count("load_signals_total", result="followed" if reads else "ignored")
        return SignalView(reads=reads)
