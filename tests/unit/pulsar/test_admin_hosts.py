"""Choose the address of a broker to call: with a token the encrypted one if there is one, also behind a redirect."""

from __future__ import annotations

from typing import Any

import pytest

from bundlekeel.model.errors import AdminUnreachable
from bundlekeel.ports import BrokerEndpoint
from bundlekeel.pulsar.admin.hosts import InsecureRedirect, KnownHosts
from bundlekeel.settings.load import load_settings

BOTH, PLAIN, ENCRYPTED = "both:1", "plain:1", "tls:1"
ENDPOINTS = {
    BOTH: BrokerEndpoint(broker_id=BOTH, web_url="http://both:8080/", web_url_tls="https://both:8443/"),
    PLAIN: BrokerEndpoint(broker_id=PLAIN, web_url="http://plain:8080"),
    ENCRYPTED: BrokerEndpoint(broker_id=ENCRYPTED, web_url="", web_url_tls="https://tls:8443"),
}


def test_a_token_goes_over_https_where_there_is_both() -> None:
    """Without a token http stays first; told to use TLS, there is no way back to http."""
    bare, token, strict = (
        KnownHosts(ENDPOINTS),
        KnownHosts(ENDPOINTS, with_token=True),
        KnownHosts(ENDPOINTS, use_tls=True),
    )
    assert [bare.base_url(item) for item in ENDPOINTS] == ["http://both:8080", "http://plain:8080", "https://tls:8443"]
    assert [token.base_url(item) for item in ENDPOINTS] == [
        "https://both:8443",
        "http://plain:8080",
        "https://tls:8443",
    ]
    assert strict.base_url(BOTH) == "https://both:8443"
    with pytest.raises(AdminUnreachable):
        strict.base_url(PLAIN)


def test_a_redirect_to_http_leads_a_token_to_https() -> None:
    hosts = KnownHosts(ENDPOINTS, with_token=True)
    here, there = "http://plain:8080/admin/v2/x?a=b", "http://both:8080/admin/v2/x?a=b"
    assert hosts.next_hop(here, there) == "https://both:8443/admin/v2/x?a=b"
    assert hosts.next_hop(there, here) == here
    assert KnownHosts(ENDPOINTS).next_hop(here, there) == there
    with pytest.raises(InsecureRedirect):
        hosts.next_hop("https://both:8443/admin/v2/x?a=b", here)


def test_clients_of_topics_take_the_encrypted_address_with_a_token() -> None:
    """The token goes there too."""
    inputs: list[dict[str, Any]] = [{}, {"admin.token": "x"}, {"admin.token_file": "x"}, {"admin.prefer_tls": True}]
    assert [load_settings(None, item, environ={}).settings.admin.encrypted_first for item in inputs] == [
        False, True, True, True,
    ]  # fmt: skip
