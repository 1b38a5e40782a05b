"""Protocol for the commands that work without a running sidecar.

The CLI must not import adapters (import contract), so the package `wiring` provides an implementation. All calls are
synchronous and run their own event loop. They raise only errors of `model.errors`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol

from bundlekeel.model.check import Check
from bundlekeel.model.response_fields import Json

if TYPE_CHECKING:
    from bundlekeel.settings.load import LoadedSettings

# Who splits bundles after a takeover: the brokers continue, or their automatic splits are off, too.
Split = Literal["brokers", "off"]


class Wiring(Protocol):
    """Implemented by the package `wiring`, and by a fake in tests."""

    def run_daemon(self, settings: LoadedSettings) -> int:
        """Run the sidecar until SIGTERM or SIGINT; returns the exit code."""

    def takeover(
        self,
        settings: LoadedSettings,
        *,
        split: Split,
        reason: str,
        by: str,
        dry_run: bool,
        namespaces: tuple[str, ...] = (),
        tell: Callable[[str], None],
    ) -> Json:
        """Turn the brokers' own shedding off and verify it on each, with `namespaces` only for those. `tell` receives
        the progress.

        Returns {brokers: [{broker, before, after, ok, detail}], warnings: [text], split: text, done: bool}. With
        `dry_run`, `after` is the expected result and nothing changes; `ok` is False for a broker that does not respond.
        Raises Conflict.
        """

    def last_takeover(self, settings: LoadedSettings) -> tuple[Split, tuple[str, ...]]:
        """Return who splits and the namespaces of the last takeover, active or ended; () for the whole cluster.

        Raises Conflict if there was none.
        """

    def handback(
        self, settings: LoadedSettings, *, reason: str, by: str, dry_run: bool, tell: Callable[[str], None]
    ) -> Json:
        """Restore what `takeover` changed; returns the fields of `takeover`.

        Without a takeover nothing changes, and `ok` is True for brokers that shed.
        """

    def deadman(self, settings: LoadedSettings, *, after: float, confirm: float, by: str, dry_run: bool) -> Json:
        """Restore what `takeover` changed if no cycle was completed for `after` seconds, nor in `confirm` more.

        Returns {state: not_taken_over|alive|dead|restored|incomplete, sentence, completed_ms, age_seconds, epoch,
        takeover: {...}|None, brokers, warnings, split, done}. The last four are those of `handback`. `age_seconds`:
        since `completed_ms` or the takeover, whichever is later. Raises StoreError or CodecError if the state is
        unknown; nothing is done in that case.
        """

    def uninstall(self, settings: LoadedSettings, *, dry_run: bool) -> list[str]:
        """Delete the shared state and return its nodes, relative to the root.

        Raises Conflict while it is in use, and StoreError.
        """

    def doctor(self, settings: LoadedSettings) -> list[Check]:
        """Check every connection and permission from this process, without a running sidecar."""

    def where(self, settings: LoadedSettings, name: str, listener: str) -> list[Json]:
        """Return the rows of `Service.where`, read directly from the metadata store."""
