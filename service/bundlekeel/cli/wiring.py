"""What the command line needs from the package `wiring`: the commands that work without a running sidecar.

The CLI must not know adapters (import contract), so that package hands these in. All calls are synchronous: they
run their own event loop. They raise errors of `core.model.errors` only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol

from bundlekeel.daemon.answers.doc import Json
from bundlekeel.daemon.answers.picture import Check

if TYPE_CHECKING:
    from bundlekeel.ports.history import HistoryStore
    from bundlekeel.settings.load import LoadedSettings

# Who splits bundles after a takeover: the brokers go on, or their automatic splits are turned off too.
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
        """Turn the brokers' own shedding off and verify it on each of them; with `namespaces` only for those. `tell` is
        told how far that is.

        {brokers: [{broker, before, after, ok, detail}], warnings: [text], split: text, done: bool}. With `dry_run`
        `after` is what it would become and nothing is changed; not `ok` is a broker that cannot be asked. Conflict.
        """

    def last_takeover(self, settings: LoadedSettings) -> tuple[Split, tuple[str, ...]]:
        """Who was to split after the last takeover, in force or ended, and its namespaces; () for the whole cluster.
        Conflict: there was none."""

    def handback(
        self, settings: LoadedSettings, *, reason: str, by: str, dry_run: bool, tell: Callable[[str], None]
    ) -> Json:
        """Restore what `takeover` found; the same answer as `takeover`. Without a takeover nothing is changed, and
        `ok` are the brokers that shed."""

    def deadman(self, settings: LoadedSettings, *, after: float, confirm: float, by: str, dry_run: bool) -> Json:
        """Restore what `takeover` found when no cycle was completed for `after` seconds, nor in `confirm` more.

        {state: not_taken_over|alive|dead|restored|incomplete, sentence, completed_ms, age_seconds, epoch, takeover:
        {...}|None, brokers, warnings, split, done}: the last four as `handback`. `age_seconds`: since `completed_ms` or
        the takeover, whichever is later. StoreError, CodecError: nothing is known, nothing is done.
        """

    def uninstall(self, settings: LoadedSettings, *, dry_run: bool) -> list[str]:
        """Delete the shared state: its nodes, below the root. Conflict while it is needed; StoreError."""

    def doctor(self, settings: LoadedSettings) -> list[Check]:
        """Every connection and permission, asked for by this process; works without a running sidecar."""

    def where(self, settings: LoadedSettings, name: str, listener: str) -> list[Json]:
        """As `Service.where`, directly from the metadata store."""

    def history(self, settings: LoadedSettings, uri: str | None) -> HistoryStore:
        """The store of recorded history: at this URI or folder, or that of the settings. ConfigError: neither."""
