"""History as Parquet files below a URI, and the local write-ahead log before them. Needs pyarrow."""

from bundlekeel.recalibration.parquet.store import ParquetStore
from bundlekeel.recalibration.parquet.wal import FileWal

__all__ = ["FileWal", "ParquetStore"]
