"""First stage of creating a sidecar: parts that read the cluster and the shared state, and the leader election."""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass

from bundlekeel import __version__
from bundlekeel.leader.gate.outage import OutageWatch, settle_for
from bundlekeel.leader.state.leadership import BENCH, Leadership, TermStart
from bundlekeel.leader.state.shared_state import SharedState
from bundlekeel.leader.state.takeover_record import takeover_request
from bundlekeel.model.members import Member
from bundlekeel.ports import Journal, Peers
from bundlekeel.pulsar.channel.channel_watch import ChannelWatch
from bundlekeel.pulsar.sources.observer import Observer
from bundlekeel.pulsar.sources.policies import PolicyCache
from bundlekeel.records.journal import FileJournal
from bundlekeel.records.notifications import DatedJournal, Notifications, ObservedJournal
from bundlekeel.records.traces import Traces
from bundlekeel.settings.describe import shared_digest
from bundlekeel.settings.load import LoadedSettings
from bundlekeel.wiring.notifications import notifications
from bundlekeel.wiring.outside import Outside, watch
from bundlekeel.wiring.traces import traces_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Parts of a sidecar that read, and change nothing at the brokers."""

    loaded: LoadedSettings
    outside: Outside
    peers: Peers
    term_start: TermStart
    leadership: Leadership
    notifications: Notifications | None
    traces: Traces | None
    journal: Journal
    shared_state: SharedState
    channel: ChannelWatch
    outage: OutageWatch
    observer: Observer
    policies: PolicyCache


def reading(loaded: LoadedSettings, out: Outside) -> Reading:
    """Create the parts that read. Raises ConfigError if a file that the settings name cannot be used."""
    peers, term_start = out.peers(), TermStart()
    leadership = _leadership(loaded, out, term_start)
    receivers = notifications(
        loaded,
        out.telemetry,
        out.clock,
        member=lambda: leadership.member.id,
        leads=lambda: leadership.leading,
    )
    traces = traces_of(loaded, out.telemetry, out.clock, leadership.member.id)
    journal = _journal(loaded, out, receivers, traces)
    return Reading(
        loaded=loaded,
        outside=out,
        peers=peers,
        term_start=term_start,
        leadership=leadership,
        notifications=receivers,
        traces=traces,
        journal=journal,
        shared_state=SharedState(
            out.coordination,
            leadership,
            out.clock,
            on_takeover=lambda record: journal.append(takeover_request(record)),
        ),
        channel=watch(out, journal.append, lambda: leadership.role != BENCH),
        outage=_outage(loaded, out, leadership),
        observer=Observer(out.source, out.clock, out.telemetry, loaded.settings.capacity_overrides),
        policies=PolicyCache(out.metadata, out.config),
    )


def _leadership(loaded: LoadedSettings, out: Outside, term_start: TermStart) -> Leadership:
    settings, clock = loaded.settings, out.clock
    name = settings.member_id or f"{socket.gethostname()}-{secrets.token_hex(3)}"
    return Leadership(
        out.coordination,
        clock,
        out.telemetry,
        Member(id=name, version=__version__, started_ms=clock.wall_ms(), settings=shared_digest(settings)),
        settings.leadership,
        metadata=out.metadata,
        acts=settings.mode == "act",
        on_won=term_start,
    )


def _journal(loaded: LoadedSettings, out: Outside, receivers: Notifications | None, traces: Traces | None) -> Journal:
    """Return the journal. It passes each of its records to notifications and traces, too."""
    section = loaded.settings.journal
    journal: Journal = FileJournal(
        loaded.located(section.path), telemetry=out.telemetry, max_bytes=section.max_bytes, backups=section.backups
    )
    for listener in (receivers, traces):
        if listener is not None:
            journal = ObservedJournal(journal, listener.observe)
    return DatedJournal(journal, out.clock.stepped_ms)


def _outage(loaded: LoadedSettings, out: Outside, leadership: Leadership) -> OutageWatch:
    store = loaded.settings.store
    return OutageWatch(
        out.coordination,
        out.source,
        leadership,
        out.clock,
        out.telemetry,
        settle=settle_for(store.settle_after_outage, store.call_timeout),
        session_seconds=store.session_timeout,
    )
