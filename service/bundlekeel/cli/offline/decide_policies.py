"""The `policies` of a turn of `decide`: what narrows where a bundle may go, for the corrected strategies.

    {"isolation": {<policy>: <NamespaceIsolationData, as in its znode>, ...},
     "anti_affinity": {<tenant/namespace>: <group>, ...},
     "failure_domains": {<domain>: [<broker id>, ...], ...}}

Failure domains count when they are given. With `compat` there is no pipeline, and so `policies` does nothing.
"""

from __future__ import annotations

import json

import msgspec
from msgspec import UNSET, UnsetType

from bundlekeel.cli.offline.decide_lines import LineFault
from bundlekeel.codec.records import decode_isolation_policies
from bundlekeel.core.model.errors import CodecError
from bundlekeel.core.model.policies import Policies


class _Given(msgspec.Struct, forbid_unknown_fields=True):
    isolation: msgspec.Raw | UnsetType = UNSET
    anti_affinity: dict[str, str] = {}
    failure_domains: dict[str, list[str]] = {}


_GIVEN = msgspec.json.Decoder(_Given)


def parse_policies(value: object) -> Policies:
    """`policies` of one turn, as JSON values. Fault names the field."""
    if value is None:
        return Policies()
    try:
        given = _GIVEN.decode(json.dumps(value).encode())
        isolation = () if given.isolation is UNSET else decode_isolation_policies(bytes(given.isolation))
    except msgspec.ValidationError as error:
        raise LineFault(str(error), "policies") from None
    except CodecError as error:
        raise LineFault(
            str(error), f"policies.isolation.{error.field}" if error.field else "policies.isolation"
        ) from None
    return Policies(
        isolation=isolation,
        anti_affinity=given.anti_affinity,
        failure_domains={name: tuple(brokers) for name, brokers in given.failure_domains.items()},
        failure_domains_enabled=bool(given.failure_domains),
    )
