"""May this cycle act? One list of obstacles, asked in order; the first one is the answer, with its code."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from bundlekeel.core.codes import EXPLANATIONS, Code
from bundlekeel.core.scope import pattern_for
from bundlekeel.daemon.brokerconfig import BrokerConfig
from bundlekeel.daemon.canary import left_to_us
from bundlekeel.daemon.documents import Desired, Pause
from bundlekeel.ports import Picture

# Load managers that are acted on; the others (Simple, Noop) are observed.
ACTED_ON = ("modular", "extensible")
MODES = ("observe", "recommend", "act")


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """Why nothing is carried out now."""

    code: Code
    detail: str = ""

    @property
    def sentence(self) -> str:
        """The explanation of the code, with the detail when there is one."""
        return f"{EXPLANATIONS[self.code]}{f' ({self.detail})' if self.detail else ''}"


def mode_in_force(ceiling: str, desired: Desired) -> str:
    """The lower of the settings file's mode and what people asked for at run time."""
    if desired.mode is None:
        return ceiling
    if desired.mode not in MODES:
        return MODES[0]  # a word of a newer version: the safe reading
    return MODES[min(MODES.index(ceiling), MODES.index(desired.mode))]


def pause_in_force(desired: Desired, now_ms: int) -> Pause | None:
    """The pause, unless its end has passed."""
    pause = desired.pause
    return pause if pause is not None and (pause.until_ms == 0 or pause.until_ms > now_ms) else None


def pause_view(pause: Pause) -> dict[str, Any]:
    """A pause as it is answered: `until_ms` None is until resumed."""
    return {"reason": pause.reason, "by": pause.by, "since_ms": pause.since_ms, "until_ms": pause.until_ms or None}


# The kinds of scope a pause may have, and how the guard's patterns begin (core/scope.py).
PAUSE_SCOPES = {"tenant": "t", "namespace": "n", "broker": "r"}


def scopes_paused(desired: Desired, now_ms: int) -> dict[str, int]:
    """The guard's patterns of the scopes that are paused now, with the end of each pause in ms (0: until resumed)."""
    found = {}
    for scope, pause in desired.pauses.items():
        kind, _, name = scope.partition(":")
        if kind in PAUSE_SCOPES and (pause.until_ms == 0 or pause.until_ms > now_ms):
            found[f"{PAUSE_SCOPES[kind]}:{name}"] = pause.until_ms
    return found


def scope_in_force(desired: Desired, now_ms: int, bundle: str, brokers: Collection[str] = ()) -> str:
    """The first pattern of a paused scope that this bundle, or one of these brokers, belongs to, or ""."""
    return pattern_for(scopes_paused(desired, now_ms), now_ms, bundle, brokers)


def picture_obstacle(picture: Picture, config: BrokerConfig) -> Obstacle | None:
    """What about the cluster itself forbids acting, in any mode: observed, reported, never acted on."""
    if picture.mode == "mixed":
        kinds = sorted({endpoint.load_manager.rpartition(".")[2] for endpoint in picture.endpoints.values()})
        return Obstacle(code=Code.MIXED_LOAD_MANAGERS, detail=", ".join(kinds))
    if picture.mode not in ACTED_ON:
        kinds = sorted({endpoint.load_manager.rpartition(".")[2] for endpoint in picture.endpoints.values()})
        return Obstacle(code=Code.UNSUPPORTED_LOAD_MANAGER, detail=", ".join(kinds) or picture.mode)
    frozen = [broker for broker in picture.endpoints if config.reports_frozen(broker)]
    if frozen:
        return Obstacle(code=Code.FROZEN_REPORTS, detail=", ".join(sorted(frozen)))
    return None


def acting_obstacle(
    *,
    picture: Picture,
    config: BrokerConfig,
    ceiling: str,
    desired: Desired,
    leading: bool,
    channel: str = "",
    stop: Obstacle | None = None,
    canary: tuple[str, ...] = (),
) -> Obstacle | None:
    """The first reason why moves are not carried out now, or None. `channel`: why the ownership channel tells nothing
    that may be acted on (extensible load manager). `stop`: what else stops everything (an outage, the dead man).
    `canary`: the namespaces taken over, where it is not all; brokers that leave those alone may shed the others."""
    mode = mode_in_force(ceiling, desired)
    if mode == "observe":
        return Obstacle(code=Code.OBSERVE_ONLY)
    if mode == "recommend":
        return Obstacle(code=Code.RECOMMEND_ONLY)
    pause = pause_in_force(desired, picture.wall_ms)
    if pause is not None:
        return Obstacle(code=Code.PAUSED, detail=f"by {pause.by}: {pause.reason}")
    if not leading:
        return Obstacle(code=Code.NOT_LEADER)
    if stop is not None:
        return stop
    cluster = picture_obstacle(picture, config)
    if cluster is not None:
        return cluster
    if picture.awaited:
        # A plan by the traffic of idle brokers alone would be a wrong one; in a moment there is a better one.
        return Obstacle(code=Code.LOAD_AWAITED, detail=", ".join(picture.awaited))
    if channel:
        return Obstacle(code=Code.CHANNEL_NOT_FOLLOWED, detail=channel)
    shedding = [
        broker
        for broker in picture.endpoints
        if config.sheds(broker) is not False and not left_to_us(config.values(broker), canary)
    ]
    if shedding:
        unknown = [broker for broker in shedding if config.sheds(broker) is None]
        detail = f"could not be asked: {', '.join(sorted(unknown))}" if unknown else ", ".join(sorted(shedding))
        return Obstacle(code=Code.BROKERS_SHED_THEMSELVES, detail=detail)
    return None
