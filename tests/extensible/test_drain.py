"""A drain on brokers of the extensible load manager, whose own placement ignores drains, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from dev.cluster import Cluster
from tests.integration.test_drain import check_drained, open_scene

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_a_broker_is_drained_and_kept_empty(extensible_cluster: Cluster, tmp_path: Path) -> None:
    """Empty within 60 s, nothing lost; whatever lands there leaves within 15 s."""
    with open_scene(extensible_cluster, tmp_path) as scene:
        check_drained(scene, tmp_path)
