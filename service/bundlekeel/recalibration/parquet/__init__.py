"""History as Parquet files below a URI, and the local log that stores cycles before that. Needs pyarrow."""

from bundlekeel.recalibration.parquet.store import ParquetStore
from bundlekeel.recalibration.parquet.tables import read_history
from bundlekeel.recalibration.parquet.wal import FileWal

__all__ = ["FileWal", "ParquetStore", "read_history"]
