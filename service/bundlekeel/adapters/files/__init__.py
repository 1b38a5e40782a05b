"""Records on the local disk."""

from bundlekeel.adapters.files.journal import FileJournal

__all__ = ["FileJournal"]
