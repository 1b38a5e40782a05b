"""State of a migration of Pulsar's metadata to another store (PIP-454, Pulsar 5.0)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import StoreMigrated


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreMigration:
    """State of the migration, which the brokers record in the store that they leave (`MigrationState`).

    `phase`: NOT_STARTED, PREPARATION, COPYING, COMPLETED or FAILED (`MigrationPhase`). Any other word counts as a
    migration in progress. `target`: URL of the new store, "" if unknown. `stamp`: id of the ZooKeeper transaction that
    wrote the record, 0 without a record.
    """

    phase: str = "NOT_STARTED"
    target: str = ""
    stamp: int = 0

    @property
    def code(self) -> Code | None:
        """Return the code of the reason why Bundlekeel may not write to this store; None if it may.

        After a failed migration it may, because the brokers continue to use this store.
        """
        if self.phase in ("NOT_STARTED", "FAILED"):
            return None
        return Code.STORE_MIGRATED if self.phase == "COMPLETED" else Code.STORE_MIGRATING

    @property
    def detail(self) -> str:
        """Return the phase and the new store, as text for operators."""
        return f"phase {self.phase}{f', to {self.target}' if self.target else ''}"

    def demand_readable(self) -> None:
        """Raise StoreMigrated once the migration is completed: the brokers no longer write to this store."""
        if self.code is Code.STORE_MIGRATED:
            self.demand_writable()

    def demand_writable(self) -> None:
        """Raise StoreMigrated during and after a migration, because the brokers may already use the new store."""
        if self.code is not None:
            raise StoreMigrated(f"{self.code.explanation} ({self.detail})", code=self.code)


NO_MIGRATION: Final = StoreMigration()
