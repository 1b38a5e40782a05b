"""Bytes of Pulsar's metadata store to values of `core`: tolerant to spelling, strict to meaning.

Every function raises `CodecError` only, whatever the bytes are: a bad record costs itself, never the cycle.
"""

from bundlekeel.codec.records import (
    classify,
    decode_anti_affinity_group,
    decode_boundaries,
    decode_bundle_data,
    decode_endpoint,
    decode_ephemeral,
    decode_failure_domain,
    decode_isolation_policies,
    decode_leader_broker,
    decode_resource_quota,
)
from bundlekeel.codec.report import MAX_REPORT_BYTES, decode_report, load_fault, unreadable_figure

__all__ = [
    "MAX_REPORT_BYTES",
    "classify",
    "decode_anti_affinity_group",
    "decode_boundaries",
    "decode_bundle_data",
    "decode_endpoint",
    "decode_ephemeral",
    "decode_failure_domain",
    "decode_isolation_policies",
    "decode_leader_broker",
    "decode_report",
    "decode_resource_quota",
    "load_fault",
    "unreadable_figure",
]
