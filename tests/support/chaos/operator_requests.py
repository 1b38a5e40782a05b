"""The requests that operators may send to sidecars during faults: how to send one over the API, and how to end it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import httpx

from dev.sidecar import Sidecar
from tests.support.chaos.history import OperatorRequest
from tests.support.chaos.schedule import What

Ask = Callable[[Sidecar], httpx.Response]
WHY: Final = {"reason": "chaos", "by": "chaos"}


@dataclass(frozen=True, slots=True)
class Asked:
    """An operator request, with the API calls that start and end it. Its `since` is 0 until it is sent."""

    request: OperatorRequest
    ask: Ask
    end: Ask


class OperatorRequests:
    """Creates operator requests for a cluster with these brokers. `owners`: function that returns the owner by
    bundle.
    """

    def __init__(self, brokers: Sequence[str], owners: Callable[[], dict[str, str]]) -> None:
        self._brokers = brokers
        self._owners = owners

    def asked(self, what: What, moment: int) -> Asked:
        """Return the request for a kind of fault. `moment`: a number that selects the broker or the bundle."""
        if what is What.PAUSE:
            return Asked(OperatorRequest(kind="pause", since=0.0), _post("pause"), _post("resume"))
        broker = self._brokers[moment % len(self._brokers)]
        if what is What.CORDON:
            place = f"brokers/{quote(broker, safe='')}"
            request = OperatorRequest(kind="cordon", since=0.0, broker=broker)
            return Asked(request, _post(f"{place}/cordon"), _post(f"{place}/uncordon"))
        if what is What.DRAIN:
            place = f"brokers/{quote(broker, safe='')}"
            request = OperatorRequest(kind="drain", since=0.0, broker=broker)
            return Asked(request, _post(f"{place}/drain", execute=True), _post(f"{place}/uncordon"))
        bundles = sorted(self._owners())
        bundle = bundles[moment % len(bundles)]
        if what is What.EXCLUDE:
            return _lasting(OperatorRequest(kind="exclusion", since=0.0, bundle=bundle), f"exclusions/b:{bundle}")
        if what is What.PAUSE_SCOPE:
            namespace = bundle.rpartition("/")[0]
            return _lasting(OperatorRequest(kind="pause", since=0.0, bundle=namespace), f"pauses/namespace:{namespace}")
        return _lasting(OperatorRequest(kind="pin", since=0.0, bundle=bundle), f"pins/{bundle}")


def end_all(sidecar: Sidecar) -> None:
    """End all operator requests that this sidecar has, except a pause of everything. Raises httpx.HTTPError."""
    standing: dict[str, list[dict[str, Any]]] = sidecar.get("/api/v1/operations") or {}
    for row in [*standing.get("cordons", []), *standing.get("drains", [])]:
        _post(f"brokers/{quote(row['broker'], safe='')}/uncordon")(sidecar)
    for kind, name in (("pins", "bundle"), ("exclusions", "pattern"), ("pauses", "scope")):
        for row in standing.get(kind, []):
            if row[name]:
                sidecar.delete(f"/api/v1/{kind}/{row[name]}", WHY)


def _post(path: str, **body: Any) -> Ask:
    return lambda sidecar: sidecar.post(f"/api/v1/{path}", WHY | body)


def _lasting(request: OperatorRequest, path: str) -> Asked:
    return Asked(
        request,
        lambda sidecar: sidecar.put(f"/api/v1/{path}", WHY),
        lambda sidecar: sidecar.delete(f"/api/v1/{path}", WHY),
    )
