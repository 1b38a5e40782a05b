"""Checks of `doctor` on the ownership channel."""

from __future__ import annotations

from collections import Counter

from bundlekeel.model.check import Check
from bundlekeel.model.text_format import numbered
from bundlekeel.ports import Clock
from bundlekeel.pulsar.channel.channel_watch import VARIANTS, ChannelWatch

_PAUSE_SECONDS = 0.1


async def channel_checks(watch: ChannelWatch, clock: Clock, *, within: float = 10.0) -> list[Check]:
    """Check that this process reads the ownership channel, and return problems found in it.

    Without a channel there are no checks. Reads the channel for up to `within` seconds, because in the process of a
    command no background task does so."""
    deadline = clock.boot() + within
    await watch.turn()
    while watch.expected and not watch.followed and clock.boot() < deadline:
        await clock.sleep(_PAUSE_SECONDS)
        await watch.turn()
    if not watch.expected:
        return []
    checks = [_followed(watch)]
    return [*checks, _variant(watch), _findings(watch)] if watch.followed else checks


def _followed(watch: ChannelWatch) -> Check:
    if watch.view is not None and watch.followed:
        return Check.passed("ownership channel", f"followed, {numbered(len(watch.view.units), 'bundle')}")
    return Check.failed(
        "ownership channel",
        watch.fault,
        "let this host reach the brokers' service and web ports, and the metadata store; its identity must be "
        "allowed to read the brokers' settings and to consume in the namespace pulsar/system",
    )


def _variant(watch: ChannelWatch) -> Check:
    obstacle = watch.obstacle()
    where = VARIANTS[watch.view.variant] if watch.view is not None else "unknown"
    return Check(
        name="channel variant",
        ok=not obstacle,
        detail=obstacle or f"in the {where} on every broker",
        fix="finish the migration of the channel; nothing is moved until then" if obstacle else "",
    )


def _findings(watch: ChannelWatch) -> Check:
    counts = Counter(row.code for row in watch.findings())
    text = ", ".join(f"{count} {code}" for code, count in counts.items())
    return Check(
        name="channel findings",
        ok=not counts,
        detail=text or "nothing wrong",
        fix="`bundlekeel channel` lists each with its remedy" if counts else "",
        severity="warning" if counts else "error",
    )
