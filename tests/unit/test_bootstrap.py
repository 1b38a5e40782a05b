"""What the wiring itself decides."""

from __future__ import annotations

import pytest

from bundlekeel.bootstrap.build import served_hosts
from bundlekeel.daemon.settings import ApiSettings, Settings


@pytest.mark.parametrize(
    ("url", "hosts"),
    [(None, ("proxy",)), ("http://keel-0.svc:8090", ("proxy", "keel-0.svc:8090"))],
)
def test_the_advertised_address_is_served(url: str | None, hosts: tuple[str, ...]) -> None:
    """Other sidecars pass plans on under it; refusing it as a wrong Host would quietly keep them from the leader."""
    settings = Settings(api=ApiSettings(advertised_url=url, allowed_hosts=("proxy",)))
    assert served_hosts(settings) == hosts
