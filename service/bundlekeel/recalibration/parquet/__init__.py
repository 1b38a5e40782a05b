"""History as Parquet files below a URI, and the local write-ahead log before them. Needs pyarrow."""

from bundlekeel.adapters.history.store import ParquetStore
from bundlekeel.adapters.history.wal import FileWal

__all__ = ["FileWal", "ParquetStore"]
