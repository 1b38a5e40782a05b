"""The smaller records of Pulsar: averages, quotas, ownership, boundaries, leader, endpoints."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bundlekeel import ports
from bundlekeel.model.errors import CodecError
from bundlekeel.model.load import AdvertisedListener, BrokerEndpoint, Owner
from bundlekeel.pulsar.formats import records

BUNDLE = "public/default/0x00000000_0x40000000"


def encode(value: Any) -> bytes:
    """JSON bytes of a value."""
    return json.dumps(value).encode()


TERM = {
    "maxSamples": 10,
    "numSamples": 3,
    "msgThroughputIn": 100.0,
    "msgThroughputOut": 200.0,
    "msgRateIn": 1.0,
    "msgRateOut": 2.0,
}


class TestAverages:
    """`decode_bundle_data` and `decode_resource_quota`."""

    def test_bundle_data(self) -> None:
        """Rates first, then throughput, whatever the order in the text."""
        data = {"shortTermData": TERM, "longTermData": TERM | {"numSamples": 500}, "topics": 9}
        got = records.decode_bundle_data(BUNDLE, encode(data))
        assert got.bundle == BUNDLE
        assert got.short == got.long == (1.0, 2.0, 100.0, 200.0)
        assert (got.short_samples, got.long_samples, got.topics) == (3, 500, 9)

    def test_absent_parts_count_as_never_sampled(self) -> None:
        """One term alone is enough."""
        got = records.decode_bundle_data(BUNDLE, encode({"longTermData": {"msgRateIn": 5, "numSamples": 2}}))
        assert (got.short, got.short_samples) == ((0, 0, 0, 0), 0)
        assert (got.long, got.long_samples) == ((5, 0, 0, 0), 2)

    @pytest.mark.parametrize(
        ("data", "code"),
        [
            ({}, "WrongType"),
            ({"shortTermData": 5}, "WrongType"),
            ({"shortTermData": TERM, "longTermData": TERM | {"msgRateIn": "NaN"}}, "NotANumber"),
            ({"shortTermData": TERM, "longTermData": TERM | {"msgRateIn": -1}}, "NegativeValue"),
            ({"shortTermData": TERM | {"numSamples": "many"}}, "WrongType"),
        ],
    )
    def test_poisoned_averages_are_refused(self, data: Any, code: str) -> None:
        """Averages are used whole or not at all."""
        with pytest.raises(CodecError) as caught:
            records.decode_bundle_data(BUNDLE, encode(data))
        assert caught.value.code == code

    def test_resource_quota(self) -> None:
        """A quota stands for both terms, fully sampled."""
        quota = {"msgRateIn": 40.0, "msgRateOut": 120.0, "bandwidthIn": 1e5, "bandwidthOut": 3e5, "memory": 80.0}
        got = records.decode_resource_quota(BUNDLE, encode(quota | {"dynamic": True}))
        assert got.short == got.long == (40.0, 120.0, 1e5, 3e5)
        assert (got.short_samples, got.long_samples) == (10, 1000)
        with pytest.raises(CodecError):
            records.decode_resource_quota(BUNDLE, encode(quota | {"msgRateIn": "NaN"}))
        with pytest.raises(CodecError):
            records.decode_resource_quota(BUNDLE, b"{}")


class TestOwnershipAndNames:
    """`decode_ephemeral`, `decode_boundaries`, `decode_leader_broker`, `decode_endpoint`."""

    def test_owner(self) -> None:
        """The web URL names the broker before 5.0, its id from then on; TLS only is possible."""
        urls = {"nativeUrl": "pulsar://h:6650", "httpUrl": "http://h:8080", "disabled": True}
        assert records.decode_ephemeral(encode(urls)) == Owner(
            broker_id="h:8080", disabled=True, web_url="http://h:8080", service_url="pulsar://h:6650"
        )
        assert records.decode_ephemeral(encode(urls | {"brokerId": "x:1"})).broker_id == "x:1"
        tls = records.decode_ephemeral(encode({"httpUrlTls": "https://h:8443", "nativeUrlTls": "pulsar+ssl://h:1"}))
        assert (tls.broker_id, tls.disabled, tls.service_url) == ("h:8443", False, "pulsar+ssl://h:1")

    @pytest.mark.parametrize(
        ("advertised", "expected"),
        [
            (None, ()),
            ({}, ()),
            (
                {
                    "internal": {"brokerServiceUrl": "pulsar://h:6650", "brokerServiceUrlTls": "pulsar+ssl://h:6651"},
                    "external": {"brokerServiceUrlTls": "pulsar+ssl://example.com:6651"},
                    "web": {"brokerHttpUrl": "http://example.com"},
                },
                (
                    AdvertisedListener("external", "pulsar+ssl://example.com:6651"),
                    AdvertisedListener("internal", "pulsar://h:6650"),
                    AdvertisedListener("web", ""),
                ),
            ),
            (
                {"bad": 5, "odd": {"brokerServiceUrl": []}},
                (AdvertisedListener("bad", ""), AdvertisedListener("odd", "")),
            ),
            ("text", ()),
        ],
    )
    def test_advertised_listeners(self, advertised: Any, expected: tuple[AdvertisedListener, ...]) -> None:
        """In the ownership node and the registry's; what is wrong with one hides neither the owner nor the broker."""
        record = {"httpUrl": "http://h:8080", "webServiceUrl": "http://h:8080", "advertisedListeners": advertised}
        assert records.decode_ephemeral(encode(record)).listeners == expected
        endpoint = records.decode_endpoint("h:8080", encode(record))
        assert (endpoint.listeners, endpoint.web_url) == (expected, "http://h:8080")

    @pytest.mark.parametrize("data", [b"{}", b'{"httpUrl":5}', b'{"httpUrl":"http://h:1","disabled":"x"}'])
    def test_owner_that_cannot_be_told(self, data: bytes) -> None:
        """Ownership is never guessed."""
        with pytest.raises(CodecError):
            records.decode_ephemeral(data)

    def test_boundaries(self) -> None:
        """LocalPolicies and Policies carry them alike."""
        bundles = {"boundaries": ["0x00000000", "0x7fffffff", "0xffffffff"], "numBundles": 2}
        assert records.decode_boundaries(encode({"bundles": bundles})) == [0, 0x7FFFFFFF, 0xFFFFFFFF]

    @pytest.mark.parametrize(
        "boundaries",
        [
            None,
            [],
            "0x0",
            ["0x00000000"],
            ["0x00000000", "0x7fffffff"],
            ["0x10000000", "0xffffffff"],
            ["0x00000000", "0x8", "0x7", "0xffffffff"],
            ["0x00000000", "x", "0xffffffff"],
            ["0x00000000", 5, "0xffffffff"],
        ],
    )
    def test_boundaries_with_gaps(self, boundaries: Any) -> None:
        with pytest.raises(CodecError):
            records.decode_boundaries(encode({"bundles": {"boundaries": boundaries}}))

    def test_leader(self) -> None:
        """Before 3.0 only a URL was stored."""
        record = {"brokerId": "h:8080", "serviceUrl": "http://h:8080"}
        assert records.decode_leader_broker(encode(record)) == "h:8080"
        assert records.decode_leader_broker(encode({"serviceUrl": "http://h:8080"})) == "h:8080"
        with pytest.raises(CodecError):
            records.decode_leader_broker(b"{}")

    def test_endpoint_of_either_load_manager(self) -> None:
        """LocalBrokerData and BrokerLookupData name the version differently."""
        record = {
            "webServiceUrl": "http://localhost:8080",
            "pulsarServiceUrl": "pulsar://localhost:6650",
            "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
            "brokerVersionString": "4.2.4",
            "startTimestamp": 1795239580000,
        }
        assert records.decode_endpoint("b", encode(record)) == BrokerEndpoint(
            broker_id="b",
            web_url="http://localhost:8080",
            service_url="pulsar://localhost:6650",
            load_manager="org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
            version="4.2.4",
            start_timestamp=1795239580000,
        )
        assert records.decode_endpoint("b", b'{"brokerVersion":"5.0.1"}').version == "5.0.1"

    def test_names_are_the_ones_of_ports(self) -> None:
        """Adapters import them from the ports."""
        assert ports.Owner is Owner
        assert ports.BrokerEndpoint is BrokerEndpoint
