"""Records of Pulsar, written by hand after what a 4.2.4 cluster stores, and every way they may be broken."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from bundlekeel.model.codes import Code
from bundlekeel.model.errors import CodecError
from bundlekeel.pulsar.formats import records
from bundlekeel.pulsar.formats.external_input import DOCUMENT, MAX_FAULTS, _is_plain, clean, clean_lines, load, read
from bundlekeel.pulsar.formats.report import MAX_REPORT_BYTES, decode_report

BUNDLE_A = "public/default/0x00000000_0x40000000"
BUNDLE_B = "public/default/0x40000000_0x80000000"
HEARTBEAT = "pulsar/localhost:8080/0x00000000_0xffffffff"


def stats(**changes: Any) -> dict[str, Any]:
    """`NamespaceBundleStats` with distinct figures, so that a swapped column shows."""
    return {
        "msgRateIn": 1.5,
        "msgThroughputIn": 1000.25,
        "msgRateOut": 2.5,
        "msgThroughputOut": 2000.75,
        "consumerCount": 4,
        "producerCount": 3,
        "topics": 7,
        "cacheSize": 0,
    } | changes


def report(**changes: Any) -> dict[str, Any]:
    """`LocalBrokerData` as a broker in a VM writes it: its NIC reports a limit of -1000."""
    return {
        "webServiceUrl": "http://localhost:8080",
        "pulsarServiceUrl": "pulsar://localhost:6650",
        "persistentTopicsEnabled": True,
        "nonPersistentTopicsEnabled": True,
        "cpu": {"usage": 33.5, "limit": 400.0},
        "memory": {"usage": 120.0, "limit": 2048.0},
        "directMemory": {"usage": 12.0, "limit": 1024.0},
        "bandwidthIn": {"usage": 5.25, "limit": -1000.0},
        "bandwidthOut": {"usage": 6.25, "limit": -1000.0},
        "msgThroughputIn": 1000.25,
        "msgThroughputOut": 2000.75,
        "msgRateIn": 1.5,
        "msgRateOut": 2.5,
        "lastUpdate": 1795239588454,
        "lastStats": {BUNDLE_A: stats(), HEARTBEAT: stats(msgRateIn=0, topics=1)},
        "numTopics": 8,
        "numBundles": 2,
        "numConsumers": 8,
        "numProducers": 6,
        "bundles": [HEARTBEAT, BUNDLE_A],
        "lastBundleGains": [],
        "lastBundleLosses": [],
        "brokerVersionString": "4.2.4",
        "protocols": {},
        "advertisedListeners": {"internal": {"brokerServiceUrl": "pulsar://localhost:6650"}},
        "loadManagerClassName": "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
        "startTimestamp": 1795239580000,
        "maxResourceUsage": 0.08375,
        "loadReportType": "LocalBrokerData",
    } | changes


def without(record: dict[str, Any], *names: str) -> dict[str, Any]:
    """The record without some fields."""
    return {key: value for key, value in record.items() if key not in names}


def encode(value: Any) -> bytes:
    """JSON bytes of a value."""
    return json.dumps(value).encode()


def decode(record: dict[str, Any]) -> Any:
    """The report of broker `b1:8080` out of a record."""
    return decode_report("b1:8080", encode(record))


class TestReport:
    """`decode_report`."""

    def test_reads_every_column(self) -> None:
        """A report as brokers write it, in the order of its statistics, without a fault."""
        got = decode(report())
        assert got.broker_id == "b1:8080"
        assert got.usage.tolist() == [33.5, 12.0, 5.25, 6.25]
        assert got.limit.tolist() == [400.0, 1024.0, -1000.0, -1000.0]
        assert got.traffic.tolist() == [1.5, 2.5, 1000.25, 2000.75]
        assert got.bundle_names == (BUNDLE_A, HEARTBEAT)
        assert got.bundle_traffic.tolist() == [[1.5, 2.5, 1000.25, 2000.75], [0.0, 2.5, 1000.25, 2000.75]]
        assert got.bundle_counts.tolist() == [[7, 4, 3], [1, 4, 3]]
        assert (got.last_update, got.start_timestamp, got.num_topics) == (1795239588454, 1795239580000, 8)
        assert got.load_manager.endswith("ModularLoadManagerImpl")
        assert got.version == "4.2.4"
        assert got.faults == ()

    def test_shapes_without_bundles(self) -> None:
        """A broker that owns nothing still has two-dimensional columns of the right types."""
        got = decode(report(lastStats={}, bundles=[]))
        assert got.bundle_traffic.shape == (0, 4)
        assert got.bundle_counts.shape == (0, 3)
        assert got.bundle_counts.dtype == np.int64

    def test_accepts_a_slice_of_a_larger_document(self) -> None:
        """`decide` cuts reports out of its input line without copying them."""
        outer = msgspec.json.decode(encode({"b": report()}), type=dict[str, msgspec.Raw])
        assert decode_report("b", outer["b"]).faults == ()
        assert records.classify(outer["b"]) == "modular"

    def test_bundle_without_statistics_counts_as_idle(self) -> None:
        """A bundle that was just taken over is owned, though it has no figures yet."""
        got = decode(report(bundles=[HEARTBEAT, BUNDLE_A, BUNDLE_B, BUNDLE_B]))
        assert got.bundle_names == (BUNDLE_A, HEARTBEAT, BUNDLE_B)
        assert got.bundle_traffic[2].tolist() == [0, 0, 0, 0]
        assert got.bundle_counts[2].tolist() == [0, 0, 0]

    def test_both_ways_agree(self) -> None:
        """The tolerant decoder reads a healthy report to the same values as the typed one."""
        typed = decode(report(bundles=[BUNDLE_B]))
        tolerant = decode(report(bundles=[BUNDLE_B], webServiceUrlTls=None))
        for name in ("usage", "limit", "traffic", "bundle_traffic", "bundle_counts"):
            assert getattr(typed, name).tolist() == getattr(tolerant, name).tolist()
        assert typed.bundle_names == tolerant.bundle_names
        assert tolerant.faults == ()

    @pytest.mark.parametrize(
        ("value", "code", "counted"),
        [
            ("NaN", Code.NOT_A_NUMBER, 0.0),
            ("Infinity", Code.NOT_A_NUMBER, 0.0),
            ("-Infinity", Code.NOT_A_NUMBER, 0.0),
            (float("nan"), Code.NOT_A_NUMBER, 0.0),
            (1e300, Code.NOT_A_NUMBER, 0.0),
            (10**400, Code.NOT_A_NUMBER, 0.0),
            (-1.0, Code.NEGATIVE_VALUE, 0.0),
            (None, Code.IMPUTED, 0.0),
            ("a lot", Code.WRONG_TYPE, 0.0),
            (True, Code.WRONG_TYPE, 0.0),
            ([1], Code.WRONG_TYPE, 0.0),
            ("12.5", None, 12.5),
        ],
    )
    def test_odd_numbers(self, value: Any, code: Code | None, counted: float) -> None:
        got = decode(
            report(cpu={"usage": value, "limit": 400.0}, msgRateIn=value, lastStats={BUNDLE_A: stats(msgRateOut=value)})
        )
        assert got.usage[0] == counted
        assert got.bundle_traffic[0].tolist() == [1.5, counted, 1000.25, 2000.75]
        assert got.traffic[1:].tolist() == [2.5, 1000.25, 2000.75]
        fields = {"cpu.usage", "msgRateIn", f"lastStats.{BUNDLE_A}.msgRateOut"}
        assert set(got.faults) == ({(code.value, field) for field in fields} if code else set())

    def test_overflowing_number_in_the_text(self) -> None:
        """1e309 is valid JSON and no float."""
        got = decode_report("b", encode(report()).replace(b"33.5", b"1e309"))
        assert got.usage[0] == 0
        assert got.faults == (("NotANumber", "cpu.usage"),)

    def test_negative_limit_is_no_fault(self) -> None:
        """Limits <= 0 mean that the broker is blind; even its usage may then be -1 (brokers not on Linux)."""
        got = decode(report(bandwidthIn={"usage": -1.0, "limit": -1.0}))
        assert (got.usage[2], got.limit[2], got.faults) == (0.0, -1.0, ())

    def test_limit_that_is_no_number_is_blind(self) -> None:
        """A limit of NaN counts as zero, which is blind."""
        got = decode(report(cpu={"usage": 5.0, "limit": "NaN"}))
        assert (got.limit[0], got.faults) == (0.0, (("NotANumber", "cpu.limit"),))

    @pytest.mark.parametrize("name", ["cpu", "directMemory", "bandwidthIn", "lastStats", "lastUpdate"])
    @pytest.mark.parametrize("value", [None, 5.5, "text", [], {}])
    def test_field_of_another_kind(self, name: str, value: Any) -> None:
        """A whole field that is missing or something else never costs the report."""
        got = decode(report(**{name: value}))
        assert got.usage.shape == (4,)
        assert got.faults or (name, value) in [("lastStats", {}), ("lastUpdate", 5.5)]

    def test_missing_sum_is_made_from_the_bundles(self) -> None:
        """An absent sum is filled in and said."""
        got = decode(without(report(), "msgRateOut"))
        assert got.traffic[1] == 5.0
        assert got.faults == (("Imputed", "msgRateOut"),)

    def test_unknown_and_absent_optional_fields(self) -> None:
        """Fields of a later version are ignored; optional ones may be absent."""
        later = report(brokerId="b1:8080", resource={"gpu": {"usage": None}})
        assert decode(later).faults == ()
        assert decode(without(report(), "brokerVersionString", "numTopics", "bundles")).faults == ()

    @pytest.mark.parametrize(
        "name",
        [
            "",
            "public/default",
            "public/default/0x0_0x4",
            "public/default/0x40000000_0x40000000",
            "public/default/0x80000000_0x40000000",
            "a/b/c/d/0x00000000_0x40000000",
            "/default/0x00000000_0x40000000",
            f"{BUNDLE_B}\n{BUNDLE_B}",
            f"{BUNDLE_B}\n",
            "public/d\ud800/0x00000000_0x40000000",
            "public/default/0x0000000g_0x40000000",
        ],
    )
    def test_bundle_name_that_does_not_parse(self, name: str) -> None:
        """Such a bundle is left out of both places and named."""
        got = decode(report(lastStats={BUNDLE_A: stats(), name: stats()}, bundles=[BUNDLE_A, name]))
        assert got.bundle_names == (BUNDLE_A,)
        assert got.bundle_traffic.shape == (1, 4)
        assert {code for code, _ in got.faults} == {"WrongType"}
        json.dumps(got.faults, ensure_ascii=False).encode()

    @pytest.mark.parametrize(
        "name", ["prop/cluster/ns/0x00000000_0x40000000", "a/b/0x00000000_0xFFFFFFFF", "ü/ns/0x00000000_0x00000001"]
    )
    def test_unusual_bundle_names_are_kept(self, name: str) -> None:
        """Three-part namespaces, upper-case bounds and letters beyond ASCII are legal."""
        got = decode(report(lastStats={name: stats()}, bundles=[name]))
        assert (got.bundle_names, got.faults) == ((name,), ())

    def test_odd_entries_of_the_list_of_bundles(self) -> None:
        """The list may hold anything."""
        got = decode(report(bundles=[BUNDLE_A, 5, None, {"a": 1}]))
        assert got.bundle_names == (BUNDLE_A, HEARTBEAT)
        assert got.faults == (("WrongType", "bundles"),)
        assert ("WrongType", "bundles") in decode(report(bundles="all")).faults

    def test_odd_counts(self) -> None:
        """Counts beyond int64 or below zero are faults; fractions are cut off."""
        rows = {BUNDLE_A: stats(topics=10**30, consumerCount=-1, producerCount=2.9)}
        got = decode(report(lastStats=rows, bundles=[]))
        assert got.bundle_counts.tolist() == [[0, 0, 2]]
        assert [code for code, _ in got.faults] == ["NotANumber", "NegativeValue"]

    def test_odd_texts_and_flags(self) -> None:
        """Texts and flags of another type fall back to their defaults."""
        got = decode(report(webServiceUrl=5, persistentTopicsEnabled="false", nonPersistentTopicsEnabled=3))
        assert (got.persistent_topics_enabled, got.non_persistent_topics_enabled) == (False, True)
        assert {field for _, field in got.faults} == {"webServiceUrl", "nonPersistentTopicsEnabled"}

    def test_faults_are_bounded(self) -> None:
        """Thousands of bad fields make a short list with a count at its end."""
        rows = {f"bad{i}": stats() for i in range(500)}
        got = decode(report(lastStats=rows, bundles=[]))
        assert len(got.faults) == MAX_FAULTS + 1
        assert got.faults[-1] == ("Imputed", "... and 400 more")

    @pytest.mark.parametrize(
        ("data", "code"),
        [
            (b"", Code.EMPTY_REPORT),
            (b" \n", Code.EMPTY_REPORT),
            (b"{", Code.NOT_JSON),
            (b"hello", Code.NOT_JSON),
            (b"\xff\xfe", Code.NOT_JSON),
            (b"[" * 100_000, Code.NOT_JSON),
            (b'{"cpu":' * 100_000, Code.NOT_JSON),
            (b"[]", Code.WRONG_TYPE),
            (b"null", Code.WRONG_TYPE),
            (b"12", Code.WRONG_TYPE),
            (b"{}", Code.WRONG_TYPE),
            (b'{"loadReportType":"LocalBrokerData"}', Code.WRONG_TYPE),
            (encode(report(loadReportType="LoadReport")), Code.WRONG_TYPE),
            (encode(report(loadReportType="LoadReport", cpu=None)), Code.WRONG_TYPE),
            (b"x" * (MAX_REPORT_BYTES + 1), Code.REPORT_TOO_LARGE),
        ],
    )
    def test_unusable_records(self, data: bytes, code: Code) -> None:
        with pytest.raises(CodecError) as caught:
            decode_report("b1:8080", data)
        assert caught.value.code == code

    def test_limit_of_size_is_inclusive(self) -> None:
        """Exactly as large as allowed is allowed."""
        data = encode(report())
        assert decode_report("b", data, max_bytes=len(data)).faults == ()
        with pytest.raises(CodecError, match="more than"):
            decode_report("b", data, max_bytes=len(data) - 1)


class TestClassify:
    """`classify`."""

    @pytest.mark.parametrize(
        ("record", "kind"),
        [
            (report(), "modular"),
            ({"loadReportType": "LocalBrokerData"}, "modular"),
            (without(report(), "loadReportType"), "modular"),
            ({"loadReportType": "LoadReport"}, "simple"),
            ({"underLoaded": False, "brokerVersionString": "2.9"}, "simple"),
            ({"brokerVersion": "4.2.4", "webServiceUrl": "http://b:8080"}, "extensible"),
            ({"loadManagerClassName": "org.apache.pulsar.broker.loadbalance.extensions.X"}, "extensible"),
        ],
    )
    def test_kinds(self, record: dict[str, Any], kind: str) -> None:
        """The rules of Pulsar's own deserializer, then the fields only one of them has."""
        assert records.classify(encode(record)) == kind
        assert records.classify(encode(record | {"odd": "\ud800"})) == kind

    @pytest.mark.parametrize(
        ("data", "code"), [(b"", "EmptyReport"), (b"nope", "NotJson"), (b"[1]", "WrongType"), (b'{"a":1}', "WrongType")]
    )
    def test_not_classifiable(self, data: bytes, code: str) -> None:
        """Anything else is refused."""
        with pytest.raises(CodecError) as caught:
            records.classify(data)
        assert caught.value.code == code


CONTROL_CHARACTERS = [0x00, 0x1B, 0x7F, 0x85, 0x9B, 0x9F, 0x61C, 0x200E, 0x202E, 0x2028, 0x2066, 0x2069, 0xD800]


@pytest.mark.parametrize("code", CONTROL_CHARACTERS)
def test_s20_control_characters_reach_no_terminal(code: int) -> None:
    """C0, C1, those that change the direction of the text around them, line separators, and halves of surrogates."""
    assert clean(f"a{chr(code)}b") == "a\ufffdb"
    assert clean_lines(f"a{chr(code)}\nb") == "a\ufffd\nb"


@pytest.mark.parametrize("code", CONTROL_CHARACTERS)
def test_s20_control_characters_of_a_document_are_replaced(code: int) -> None:
    """In names and values, by both readers of documents, escaped or (where JSON allows that) as it is."""
    for character in (f"\\u{code:04x}", chr(code) if code > 0x1F else ""):
        data = f'{{"a{character}b": "a{character}b"}}'.encode("utf-8", "surrogatepass")
        for result in (load(data, what="a test"), read(data, dict[str, str], what="a test")):
            ((name, value),) = result.items()
            assert name == value and not set(name) - set("ab\ufffd")


def test_s_a_number_longer_than_20_digits_is_a_float() -> None:
    """An integer of any length would cost time that grows with the square of its digits."""
    assert [type(item) for item in load(b"[" + b"9" * 21 + b", 123]", what="a test")] == [float, int]


def test_s_a_usual_document_takes_the_fast_decoder() -> None:
    """Escaped quotes, backslashes and letters of other languages need no cleaning; reports of 10 MiB must not take the
    slow path for them."""
    assert _is_plain(rb'{"a": "b\"c\\", "n": [1234567890123456789, 1.5]}', DOCUMENT)
    assert _is_plain('{"reason": "Wartung f\u00fcr \u6f22, \u0440\u0443"}'.encode(), DOCUMENT)


@pytest.mark.parametrize(
    "text", ["", "a b", "\u00e9t\u00e9", "\u0440\u0443", "\u6f22", "\u0645\u0631", "\U0001f600", "a\u00a0b"]
)
def test_s20_other_text_stays(text: str) -> None:
    assert clean(text) == clean_lines(text) == text
