"""URLs and the allow-list: names cannot change where a request goes, and only exact reads are harmless."""

from __future__ import annotations

from urllib.parse import parse_qs, unquote, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bundlekeel.model.errors import AdminRefused, AdminUnauthorized
from bundlekeel.pulsar.admin.routes import (
    DELETE_DYNAMIC,
    HARMLESS,
    LOOKUP,
    SET_DYNAMIC,
    UNLOAD,
    bundle_path,
    is_harmless,
    lookup_path,
    with_query,
)
from bundlekeel.settings.token_source import TokenSource

NAMES = st.one_of(
    st.sampled_from([".", "..", "%2e", "a/b", "a?b", "a#b", "a b", "a+b", "ü", "\\", "\r\nX: y"])
) | st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
BASE = "http://broker:8080"


def segments(path: str) -> list[str]:
    """Decoded segments as httpx sends them."""
    raw = httpx.URL(BASE + path).raw_path.decode("ascii")
    return [unquote(part) for part in urlsplit(raw).path.split("/")[1:]]


@given(topic=NAMES, tenant=NAMES, namespace=NAMES)
def test_names_stay_in_their_segment(topic: str, tenant: str, namespace: str) -> None:
    """Whatever a topic, tenant or namespace is called, host, depth and the fixed words of the path stay."""
    path = LOOKUP.path(domain="persistent", tenant=tenant, namespace=namespace, topic=topic)
    url = httpx.URL(BASE + path)
    assert (url.host, url.port, url.query, url.fragment) == ("broker", 8080, b"", "")
    assert segments(path) == ["lookup", "v2", "topic", "persistent", tenant, namespace, topic]
    assert LOOKUP.pattern.fullmatch(path)


@given(key=NAMES, value=NAMES)
def test_values_stay_in_the_path(key: str, value: str) -> None:
    """A dynamic value is one segment, even with slashes."""
    assert segments(SET_DYNAMIC.path(key=key, value=value))[-2:] == [key, value]


@given(value=st.text(st.characters(exclude_categories=["Cs"])))
def test_query_values_survive(value: str) -> None:
    """A query value can neither end its parameter nor add another."""
    url = httpx.URL(BASE + with_query("/x", {"destinationBroker": value, "authoritative": "true"}))
    parsed = parse_qs(url.query.decode(), keep_blank_values=True)
    assert parsed == {"destinationBroker": [value], "authoritative": ["true"]}


def test_known_paths() -> None:
    """The two mutations of a move, spelled as Pulsar's own client spells them."""
    bundle = "t/n s/0x00000000_0x40000000"
    assert bundle_path(UNLOAD, bundle) == "/admin/v2/namespaces/t/n%20s/0x00000000_0x40000000/unload"
    assert (
        lookup_path("non-persistent://t/n/a%b-partition-0") == "/lookup/v2/topic/non-persistent/t/n/a%25b-partition-0"
    )
    with pytest.raises(AdminRefused):
        DELETE_DYNAMIC.path(key="")


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/admin/v2/brokers/configuration/runtime"),
        ("GET", "/admin/v2/brokers/configuration/values"),
        ("GET", "/admin/v2/brokers/ready"),
        ("GET", "/admin/v2/broker-stats/topics"),
        ("GET", "/admin/v2/broker-stats/mbeans"),
        ("GET", "/admin/v2/broker-stats/metrics"),
        ("GET", "/admin/v2/brokers/local/10.0.0.1%3A8080/ownedNamespaces"),
        ("GET", "/admin/v2/persistent/t/n/topic/partitions?authoritative=true"),
        ("GET", "/admin/v2/namespaces/t/n/0x00000000_0x40000000/topicHashPositions?topics=a&topics=b"),
    ],
)
def test_harmless(method: str, target: str) -> None:
    """The whole allow-list."""
    assert is_harmless(method, BASE + target)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("GET", "/lookup/v2/topic/persistent/t/n/topic"),
        ("GET", "/metrics"),
        ("GET", "/admin/v2/brokers/health"),
        ("POST", "/admin/v2/brokers/configuration/runtime"),
        ("DELETE", "/admin/v2/brokers/configuration/values"),
        ("GET", "/admin/v2/brokers/configuration/runtime/"),
        ("GET", "/admin/v2/brokers/configuration/runtime?x=1"),
        ("GET", "/x/admin/v2/brokers/configuration/runtime"),
        ("GET", "/admin/v2/brokers/configuration/runtimes"),
        ("GET", "/admin/v2/persistent/t/n/topic/partitions?checkAllowAutoCreation=true"),
        ("PUT", "/admin/v2/persistent/t/n/topic/partitions"),
        ("GET", "/admin/v2/persistent/t/n/a/b/partitions"),
        ("HEAD", "/admin/v2/brokers/ready"),
        ("get", "/admin/v2/brokers/ready"),
    ],
)
def test_not_harmless(method: str, target: str) -> None:
    assert not is_harmless(method, BASE + target)


def test_only_gets_are_listed() -> None:
    """No other method can ever be harmless."""
    assert {route.method for route in HARMLESS} == {"GET"}


@pytest.mark.parametrize("text", ["", " ", "a\nb", "a b", "tökén", "a\x00"])
def test_a_token_that_would_break_the_header_is_refused(text: str) -> None:
    """A token goes into a header line: white space inside or anything but ASCII is refused without showing it."""
    with pytest.raises(AdminUnauthorized) as caught:
        TokenSource(text)
    assert "token setting" in str(caught.value)


def test_token_spellings(tmp_path: object) -> None:
    """`token:`, `file:`, `file://` and bare text are understood as Pulsar's clients do; one source only."""
    assert TokenSource.parse("token:abc").current() == TokenSource.parse("abc").current() == "abc"
    assert repr(TokenSource.parse("file:///a/b")) == repr(TokenSource.parse("file:/a/b"))
    with pytest.raises(ValueError, match="either"):
        TokenSource()
    with pytest.raises(AdminUnauthorized, match="No such file"):
        TokenSource.parse(f"file:{tmp_path}/none").current()
