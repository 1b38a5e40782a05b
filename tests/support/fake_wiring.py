"""A `cli.wiring.Wiring` that writes down what it is asked for, for tests of the command line."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from bundlekeel.cli.wiring import Split
from bundlekeel.daemon.answers.doc import Json
from bundlekeel.daemon.answers.picture import Check
from tests.support.fake_service import BROKERS, FakeService, places


class FakeWiring:
    """What bootstrap would do, written down."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.checks = FakeService().findings
        self.verified = True
        self.deaths: list[Json | Exception] = []
        self.namespaces: tuple[str, ...] = ()
        self.nodes = ["state/ledger", "state", "epoch"]

    def run_daemon(self, settings: Any) -> int:
        """Ends at once."""
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
        """One that was of a namespace, without the brokers' splits."""
        return "off", ("shop/orders",)

    def handback(self, settings: Any, *, reason: str, by: str, dry_run: bool, tell: Any) -> Json:
        """One broker."""
        self.calls.append(("handback", (reason, by, dry_run)))
        return {"brokers": [{"broker": BROKERS[0], "before": False, "after": True, "ok": True, "detail": ""}]}

    def uninstall(self, settings: Any, *, dry_run: bool) -> list[str]:
        """The nodes set."""
        self.calls.append(("uninstall", dry_run))
        return self.nodes

    def deadman(self, settings: Any, *, after: float, confirm: float, by: str, dry_run: bool) -> Json:
        """The next of the answers set; an error is raised."""
        self.calls.append(("deadman", (after, confirm, by, dry_run)))
        answer = self.deaths.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def doctor(self, settings: Any) -> list[Check]:
        """The checks set."""
        return self.checks

    def where(self, settings: Any, name: str, listener: str) -> list[Json]:
        """Two partitions."""
        self.calls.append(("where", name))
        return [asdict(place) for place in places(name, listener)]
