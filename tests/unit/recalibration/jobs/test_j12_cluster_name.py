"""The cluster's name in recorded history and in thresholds.json: two clusters in one place are refused by name."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import HistoryError, ThresholdsError
from bundlekeel.model.parameters import Parameters
from bundlekeel.recalibration.adopting.watcher import OVERRIDABLE
from bundlekeel.recalibration.history.ports import HistoryFile
from bundlekeel.recalibration.jobs.options import Options, cluster_of, newest
from bundlekeel.recalibration.jobs.rules import OtherCluster
from bundlekeel.recalibration.parquet import ParquetStore
from bundlekeel.recalibration.recorder.history_reading import check
from bundlekeel.recalibration.rules.thresholds import AdoptionRules, checked
from bundlekeel.recalibration.rules.thresholds_json import document_of, thresholds_of
from tests.support.history_cases import START_MS, records_of, sequence
from tests.support.threshold_cases import NOW_MS, document

HOUR_MS = 3_600_000


def published(folder: Path, cluster: str, epoch: int = 1, hour: int = 0) -> HistoryFile:
    """Three cycles of a cluster."""
    records = records_of(sequence(3, epoch, start_ms=START_MS + hour * HOUR_MS), epoch=epoch)
    return ParquetStore(folder, cluster).publish(epoch, 1, records)


def options(folder: Path, cluster: str = "") -> Options:
    now = datetime(2023, 11, 16, 2, tzinfo=UTC)
    return Options(history=str(folder), out=str(folder / "out"), now=now, adoption=AdoptionRules(cluster=cluster))


class TestHistory:
    """Files name the cluster that wrote them."""

    def test_j12_two_clusters_are_refused_by_name(self, tmp_path: Path) -> None:
        one, other = published(tmp_path, "east"), published(tmp_path, "west", epoch=2)
        with pytest.raises(OtherCluster, match=r"2 clusters recorded here: east .*, west ") as caught:
            cluster_of(options(tmp_path), newest(options(tmp_path)))
        assert one.path in str(caught.value) and other.path in str(caught.value)
        assert caught.value.figures == {"clusters": {"east": [one.path], "west": [other.path]}}
        assert OtherCluster.code == Code.OTHER_CLUSTER.value
        result = check(ParquetStore(tmp_path))
        assert not result["ok"]
        assert result["clusters"] == caught.value.figures["clusters"]
        assert result["mixed"] == str(caught.value)

    def test_j12_the_same_numbers_of_another_cluster_are_not_ours(self, tmp_path: Path) -> None:
        """The file that is there names its cluster."""
        published(tmp_path, "west")
        with pytest.raises(HistoryError, match="other cycles of cluster west"):
            published(tmp_path, "east")

    def test_j12_an_hour_of_two_clusters_is_not_put_together(self, tmp_path: Path) -> None:
        """Files of one cluster are put together, and keep its name."""
        records = records_of(sequence(9, 1))
        stores = [ParquetStore(tmp_path, name) for name in ("east", "east", "west")]
        files = [
            store.publish(1, seq, records[3 * seq - 3 : 3 * seq]) for seq, store in zip((1, 2, 3), stores, strict=True)
        ]
        with pytest.raises(HistoryError, match="east, west"):
            stores[1].merge(files)
        assert stores[1].files() == files
        assert stores[0].span(stores[2].merge(files[:2])).cluster == "east"

    def test_j12_history_of_another_cluster_than_the_settings_name(self, tmp_path: Path) -> None:
        """Refused before hours of search, naming both."""
        published(tmp_path, "west")
        with pytest.raises(OtherCluster, match="cluster west, but the settings are for cluster east"):
            cluster_of(options(tmp_path, "east"), newest(options(tmp_path)))
        assert cluster_of(options(tmp_path, "west"), newest(options(tmp_path))) == "west"


class TestThresholds:
    """The document says whose history it rests on."""

    @staticmethod
    def codes(made: dict[str, Any], cluster: str) -> list[tuple[Code, str]]:
        """The objections of a sidecar of this cluster."""
        objections = checked(thresholds_of(made), Parameters(), AdoptionRules(cluster=cluster), NOW_MS)
        return [(item.code, item.detail) for item in objections]

    def test_j12_another_clusters_thresholds_are_never_adopted(self) -> None:
        """Not by force either; the message names both."""
        detail = "it is based on the history of cluster west, and this is cluster east"
        assert self.codes(document(cluster="west"), "east") == [(Code.OTHER_CLUSTER, detail)]
        assert Code.OTHER_CLUSTER not in OVERRIDABLE

    @pytest.mark.parametrize(("message", "own"), [("east", "east"), ("", "east"), ("west", "")])
    def test_j12_ones_own_and_unnamed_ones_are(self, message: str, own: str) -> None:
        """A job without settings compares no names."""
        assert self.codes(document(cluster=message), own) == []

    def test_j12_the_name_is_written_and_read(self) -> None:
        """A cluster that is not a string is refused by name."""
        thresholds = thresholds_of(document(cluster="east"))
        assert document_of(thresholds)["cluster"] == "east" and thresholds_of(document_of(thresholds)) == thresholds
        with pytest.raises(ThresholdsError, match="cluster"):
            thresholds_of(document(cluster=3))
