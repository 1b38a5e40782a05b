"""Settings that are allowed but hardly meant: reported by `config check`, never refused."""

from __future__ import annotations

from bundlekeel.core.model.parameters import BY_NAME
from bundlekeel.settings.model import Settings

_AVG = "avg"


LOOPBACK = ("127.0.0.1", "::1", "localhost")


def warnings_of(settings: Settings) -> list[str]:
    """One sentence each."""
    return [*_of_strategy(settings), *_without_effect(settings), *_of_security(settings)]


def _of_security(settings: Settings) -> list[str]:
    api, found = settings.api, []
    if api.auth.on and not api.tls.on and api.host not in LOOPBACK:
        found.append(f"api.auth without api.tls on {api.host}: tokens travel readable; set api.tls.cert_file")
    if api.auth.on and api.auth.peer_token_file is None:
        found.append(
            "api.auth without api.auth.peer_token_file: a follower cannot pass a dry run on to the leader and makes it "
            "from its own picture"
        )
    for section, name in (("admin", "brokers"), ("store", "ZooKeeper")):
        if not getattr(settings, section).tls_verify:
            found.append(f"{section}.tls_verify is false: whoever stands in between can pose as {name}")
    if settings.store.sasl_username is not None and not settings.store.tls:
        found.append("store.sasl_username without store.tls: what is read and written travels readable and unsigned")
    return found


def _of_strategy(settings: Settings) -> list[str]:
    compat = settings.compat
    if compat == "none" and settings.placement == _AVG and settings.strategy != _AVG:
        return [
            f"placement avg goes with strategy avg only, and the strategy is {settings.strategy}: bundles would be "
            "placed by the hash of their names, whatever the load; take least_resource_usage"
        ]
    if settings.strategy == "deviation" and compat != "none":
        return [f"Pulsar ships no class for strategy deviation: compat {compat} changes nothing about it"]
    return []


def _without_effect(settings: Settings) -> list[str]:
    """Parameters that only Pulsar's own classes read."""
    if settings.compat != "none":
        return []
    given = [spec for name in settings.parameters if (spec := BY_NAME[name]).instead]
    return [
        f"parameters.{spec.name} ({spec.pulsar_keys[0]}) has no effect with compat none; set instead: {spec.instead}"
        for spec in given
    ]
