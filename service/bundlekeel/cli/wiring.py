"""Protocol with the functions of commands that work without a running sidecar.

The CLI must not import modules that connect to brokers and stores (import contract), so the package `wiring` implements
the protocol. All methods are synchronous and run their own event loop. They raise only errors of `model.errors`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Protocol

from bundlekeel.model.check import Check
from bundlekeel.model.response_fields import Json

if TYPE_CHECKING:
    from bundlekeel.settings.load import LoadedSettings

# Who splits bundles after a takeover. `brokers`: they continue; `off`: their automatic splits are turned off, too.
Split = Literal["brokers", "off"]


class Wiring(Protocol):
    """Functions that connect to brokers and stores. Implemented by the package `wiring`, and by a fake in tests."""

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
        """Turn the brokers' own shedding off and verify it on each broker; `tell` is called with the progress.

        `namespaces`: turn it off only for these; (): for the whole cluster. With `dry_run` nothing changes, `after` is
        the expected result, and `ok` is False for a broker that does not respond. Returns {brokers: [{broker, before,
        after, ok, detail}], warnings: [text], split: text, done: bool}. Raises Conflict if it is not possible now.
        """

    def last_takeover(self, settings: LoadedSettings) -> tuple[Split, tuple[str, ...]]:
        """Return `split` and `namespaces` of the last takeover, active or ended. Raises Conflict if there was none."""

    def handback(
        self, settings: LoadedSettings, *, reason: str, by: str, dry_run: bool, tell: Callable[[str], None]
    ) -> Json:
        """Restore the settings that `takeover` changed; return the same fields as `takeover`.

        If no takeover is active, nothing changes, and `ok` is True for brokers that shed.
        """

    def deadman(self, settings: LoadedSettings, *, after: float, confirm: float, by: str, dry_run: bool) -> Json:
        """Do what `handback` does if no cycle was completed for `after` seconds, nor in the next `confirm` seconds.

        Returns {state: not_taken_over|alive|dead|restored|incomplete, sentence, completed_ms, age_seconds, epoch,
        takeover: {...}|None, brokers, warnings, split, done}. The last four are the fields of `handback`.
        `age_seconds`: time since `completed_ms` or the takeover, whichever is later. Raises StoreError or CodecError
        if the state cannot be read; then nothing is changed.
        """

    def uninstall(self, settings: LoadedSettings, *, dry_run: bool) -> list[str]:
        """Delete Bundlekeel's shared state and return the names of its nodes; with `dry_run`, only return them.

        Raises Conflict while a sidecar or broker still needs the state, and StoreError if the store does not respond.
        """

    def doctor(self, settings: LoadedSettings) -> list[Check]:
        """Check every connection and permission from this process, without a running sidecar."""

    def where(self, settings: LoadedSettings, name: str, listener: str) -> list[Json]:
        """Return one row per topic, partition or bundle with its owner, read directly from the metadata store."""
