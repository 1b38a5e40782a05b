"""A `cli.wiring.Wiring` that records its calls, for tests of the command line."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from bundlekeel.cli.wiring import Split
from bundlekeel.model.check import Check
from bundlekeel.model.errors import ConfigError
from bundlekeel.model.response_fields import Json
from bundlekeel.requests.where import Place
from tests.support.shop import BROKERS, BUNDLES

CHECKS = (
    Check.passed("metadata store", "zk:zk1:2181/pulsar answers"),
    Check.failed("shedding", f"{BROKERS[1]} still sheds itself", "run `bundlekeel takeover`"),
    Check.warned("nic", "NICs report no limit", "set capacity.nic_gbps"),
)


def places(name: str, listener: str = "") -> list[Place]:
    """Return an owned and an unowned partition. Raises ConfigError if the listener is not `external`."""
    if listener not in ("", "external"):
        raise ConfigError("no such listener; it has external", field="listener", value=listener, allowed="external")
    topic = name if "://" in name else f"persistent://shop/orders/{name}"
    unowned = Place(
        topic=f"{topic}-partition-1",
        topic_exists=False,
        hash="0x3a2b3c4d",
        bundle=BUNDLES[3],
        broker=None,
        state="unowned",
        web_url="",
        service_url="",
        listener=listener or None,
        preallocated_to=None,
    )
    owned = replace(
        unowned,
        topic=f"{topic}-partition-0",
        topic_exists=True,
        hash="0x1a2b3c4d",
        bundle=BUNDLES[0],
        broker=BROKERS[0],
        state="owned",
        web_url="http://broker-0.pulsar:8080",
        service_url="pulsar://example.com:31000" if listener else "pulsar://broker-0.pulsar:6650",
    )
    return [owned, unowned]


class FakeWiring:
    """Records the calls of commands that need no running sidecar, and returns fixed results."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.checks = list(CHECKS)
        self.verified = True
        self.deaths: list[Json | Exception] = []
        self.namespaces: tuple[str, ...] = ()
        self.nodes = ["state/ledger", "state", "epoch"]

    def run_daemon(self, settings: Any) -> int:
        """Record the call and return immediately."""
        self.calls.append(("run", settings.settings))
        return 0

    def takeover(
        self, settings: Any, *, split: str, reason: str, by: str, dry_run: bool, tell: Any, namespaces: Any = ()
    ) -> Json:
        """One broker."""
        self.calls.append(("takeover", (split, reason, by, dry_run)))
        if not dry_run:
            tell("1 of 1 broker verified")
        self.namespaces = namespaces
        row = {"broker": BROKERS[0], "before": True, "after": False, "ok": self.verified, "detail": ""}
        return {"brokers": [row], "warnings": ["placement is random"], "split": "the brokers", "done": not dry_run}

    def last_takeover(self, settings: Any) -> tuple[Split, tuple[str, ...]]:
        """Return a takeover of one namespace that left the brokers' splits on."""
        return "off", ("shop/orders",)

    def handback(self, settings: Any, *, reason: str, by: str, dry_run: bool, tell: Any) -> Json:
        """One broker."""
        self.calls.append(("handback", (reason, by, dry_run)))
        return {"brokers": [{"broker": BROKERS[0], "before": False, "after": True, "ok": True, "detail": ""}]}

    def uninstall(self, settings: Any, *, dry_run: bool) -> list[str]:
        """Return the nodes that the test has set."""
        self.calls.append(("uninstall", dry_run))
        return self.nodes

    def deadman(self, settings: Any, *, after: float, confirm: float, by: str, dry_run: bool) -> Json:
        """Return the next result that the test has set, or raise it if it is an error."""
        self.calls.append(("deadman", (after, confirm, by, dry_run)))
        answer = self.deaths.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def doctor(self, settings: Any) -> list[Check]:
        """Return the checks that the test has set."""
        return self.checks

    def where(self, settings: Any, name: str, listener: str) -> list[Json]:
        """Return two partitions, one of them with an owner."""
        self.calls.append(("where", name))
        return [asdict(place) for place in places(name, listener)]
