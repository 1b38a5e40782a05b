"""Decodes Pulsar's smaller records: averages, quotas, owners, bundle boundaries, leader, endpoints, broker settings.

Unlike load reports, these are used completely or not at all: an invalid number makes the record unusable, because a
wrong average of 1,000 samples would mislead for hours.
"""

from __future__ import annotations

import itertools
import json
from typing import Any, Final, Literal

import msgspec

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.model.load import AdvertisedListener, BrokerEndpoint, BundleAverages, Owner
from bundlekeel.model.migration import StoreMigration
from bundlekeel.model.names import FULL_LOWER, FULL_UPPER, broker_id_of_url
from bundlekeel.model.numbers import integer
from bundlekeel.pulsar.formats.external_input import DOCUMENT, REPORT, Faults, Fields, Limit, load_object
from bundlekeel.pulsar.formats.report import RATES

LoadManagerKind = Literal["modular", "simple", "extensible"]

_QUOTA_RATES: Final = ("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut")
# A quota counts as a full history of both averages, short and long (ModularLoadManagerImpl: "ample history").
_SHORT_SAMPLES: Final = 10
_LONG_SAMPLES: Final = 1000
# Pulsar 4 has about 500.
_MOST_SETTINGS: Final = 2000

_Rates = tuple[float, float, float, float]


class _Kind(msgspec.Struct, gc=False, rename="camel"):
    load_report_type: Any = None
    under_loaded: Any = None
    broker_version: Any = None
    load_manager_class_name: Any = None
    cpu: Any = None


_KIND_DECODER: Final = msgspec.json.Decoder(_Kind)


def classify(data: bytes | msgspec.Raw) -> LoadManagerKind:
    """Return the load manager that wrote this child of `/loadbalance/brokers` (Pulsar's `LoadReportDeserializer`)."""
    try:
        kind = _KIND_DECODER.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError):
        raw = load_object(bytes(data), limit=REPORT)
        kind = _Kind(
            load_report_type=raw.get("loadReportType"),
            under_loaded=raw.get("underLoaded"),
            broker_version=raw.get("brokerVersion"),
            load_manager_class_name=raw.get("loadManagerClassName"),
            cpu=raw.get("cpu"),
        )
    if kind.load_report_type == "LoadReport" or kind.under_loaded is not None:
        return "simple"
    if kind.load_report_type is not None:
        return "modular"
    if kind.broker_version is not None or ".extensions." in str(kind.load_manager_class_name):
        return "extensible"
    if kind.cpu is not None:
        return "modular"
    raise CodecError("the record is that of no known load manager", code=Code.WRONG_TYPE)


def decode_bundle_data(bundle: str, data: bytes | msgspec.Raw) -> BundleAverages:
    """Decode `/loadbalance/bundle-data/...`: the averages of a bundle. Missing averages and numbers count as 0."""
    fields, faults = _open(data)
    if not fields.has("shortTermData") and not fields.has("longTermData"):
        raise CodecError("the record holds no averages", code=Code.WRONG_TYPE, field="shortTermData")
    short = fields.child("shortTermData", required=False)
    long = fields.child("longTermData", required=False)
    averages = BundleAverages(
        bundle=bundle,
        short=_rates(short, RATES),
        long=_rates(long, RATES),
        short_samples=short.integer("numSamples"),
        long_samples=long.integer("numSamples"),
        topics=fields.integer("topics"),
    )
    refuse_faults(faults)
    return averages


def decode_resource_quota(bundle: str, data: bytes | msgspec.Raw) -> BundleAverages:
    """Decode `/loadbalance/resource-quota/...`. The quota counts as short-term and long-term average, each with its
    maximum number of samples."""
    fields, faults = _open(data)
    if not any(fields.has(name) for name in _QUOTA_RATES):
        raise CodecError("the record holds no quota", code=Code.WRONG_TYPE, field="msgRateIn")
    rates = _rates(fields, _QUOTA_RATES)
    refuse_faults(faults)
    return BundleAverages(
        bundle=bundle, short=rates, long=rates, short_samples=_SHORT_SAMPLES, long_samples=_LONG_SAMPLES
    )


def decode_ephemeral(data: bytes | msgspec.Raw) -> Owner:
    """Decode `/namespace/...`, the owner of a bundle. Before Pulsar 5.0 the broker id is derived from the web URL."""
    fields, faults = _open(data)
    web_url = fields.text("httpUrl") or fields.text("httpUrlTls")
    broker_id = fields.text("brokerId") or broker_id_of_url(web_url)
    if not broker_id:
        raise CodecError("the record names no broker", code=Code.WRONG_TYPE, field="httpUrl")
    disabled = fields.flag("disabled", default=False)
    service_url = fields.text("nativeUrl") or fields.text("nativeUrlTls")
    refuse_faults(faults)
    return Owner(
        broker_id=broker_id, disabled=disabled, web_url=web_url, service_url=service_url, listeners=_listeners(fields)
    )


def decode_boundaries(data: bytes | msgspec.Raw) -> list[int]:
    """Return the bundle boundaries in `LocalPolicies` or `Policies`.

    Raises CodecError if they do not cover all hashes.
    """
    fields, faults = _open(data)
    texts = fields.child("bundles").items("boundaries")
    refuse_faults(faults)
    boundaries = [integer(text, field="bundles.boundaries", highest=FULL_UPPER, base=16) for text in texts]
    ascending = all(low < high for low, high in itertools.pairwise(boundaries))
    if len(boundaries) < 2 or boundaries[0] != FULL_LOWER or boundaries[-1] != FULL_UPPER or not ascending:
        raise CodecError(
            "the boundaries do not ascend from 0x00000000 to 0xffffffff",
            code=Code.WRONG_TYPE,
            field="bundles.boundaries",
        )
    return boundaries


def decode_leader_broker(data: bytes | msgspec.Raw) -> str:
    """Return the broker id in `/loadbalance/leader`, Pulsar's leader broker (before 3.0 only a URL is stored)."""
    fields, _ = _open(data)
    broker_id = fields.text("brokerId") or broker_id_of_url(fields.text("serviceUrl"))
    if not broker_id:
        raise CodecError("the record names no broker", code=Code.WRONG_TYPE, field="brokerId")
    return broker_id


def decode_migration(data: bytes, *, stamp: int) -> StoreMigration:
    """Return the state of a store migration (`MigrationState`). An unreadable record has the phase UNREADABLE, not
    NOT_STARTED, because brokers write this record only when a migration begins."""
    try:
        fields, _ = _open(data)
    except CodecError:
        return StoreMigration(phase="UNREADABLE", stamp=stamp)
    return StoreMigration(phase=fields.text("phase") or "UNREADABLE", target=fields.text("targetUrl"), stamp=stamp)


def decode_endpoint(broker_id: str, data: bytes | msgspec.Raw) -> BrokerEndpoint:
    """Return the addresses of a registered broker. All load managers write these fields with the same names."""
    fields, _ = _open(data, REPORT)
    return BrokerEndpoint(
        broker_id=broker_id,
        web_url=fields.text("webServiceUrl"),
        web_url_tls=fields.text("webServiceUrlTls"),
        service_url=fields.text("pulsarServiceUrl"),
        service_url_tls=fields.text("pulsarServiceUrlTls"),
        load_manager=fields.text("loadManagerClassName"),
        version=fields.text("brokerVersionString") or fields.text("brokerVersion"),
        start_timestamp=fields.integer("startTimestamp"),
        persistent_topics_enabled=fields.flag("persistentTopicsEnabled", default=True),
        non_persistent_topics_enabled=fields.flag("nonPersistentTopicsEnabled", default=True),
        listeners=_listeners(fields),
    )


def _listeners(fields: Fields) -> tuple[AdvertisedListener, ...]:
    """Return `advertisedListeners` by name. An invalid listener does not make the rest of the record unusable."""
    listeners = fields.child("advertisedListeners", required=False)
    records = [(name, listeners.child(name)) for name in sorted(listeners.names())]
    return tuple(
        AdvertisedListener(name, record.text("brokerServiceUrl") or record.text("brokerServiceUrlTls"))
        for name, record in records
    )


def _open(data: bytes | msgspec.Raw, limit: Limit = DOCUMENT) -> tuple[Fields, Faults]:
    faults = Faults()
    return Fields(load_object(bytes(data), limit=limit, exact=True), faults), faults


def _rates(fields: Fields, names: tuple[str, str, str, str]) -> _Rates:
    rate_in, rate_out, throughput_in, throughput_out = (fields.number(name, required=False) for name in names)
    return rate_in, rate_out, throughput_in, throughput_out


def refuse_faults(faults: Faults) -> None:
    """Raise CodecError with the first fault, if any: records with faults must not be used."""
    for code, field in faults.as_tuple():
        raise CodecError(f"{field} is unusable ({code})", code=code, field=field)


def decode_settings(data: bytes) -> dict[str, str]:
    """Return settings of a broker by name. Values that are not strings are returned as JSON.

    Raises CodecError if `data` is not a JSON object, or has more than 2,000 settings: all settings are in memory.
    """
    body = load_object(data, what="the list of settings")
    if len(body) > _MOST_SETTINGS:
        raise CodecError(f"the broker shows more than {_MOST_SETTINGS} settings", code=Code.REPORT_TOO_LARGE)
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in body.items()}
