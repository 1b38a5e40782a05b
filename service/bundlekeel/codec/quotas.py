"""What brokers say of quotas: rates and ResourceGroups in Pulsar's JSON, and the usage they tell each other."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from bundlekeel.codec.external_input import read
from bundlekeel.core.quotas.enforce import PUBLISH, Rate
from bundlekeel.core.quotas.native import ResourceGroup


class _Publish(msgspec.Struct):
    publishThrottlingRateInMsg: int = -1
    publishThrottlingRateInByte: int = -1


class _Dispatch(msgspec.Struct):
    dispatchThrottlingRateInMsg: int = -1
    dispatchThrottlingRateInByte: int = -1
    relativeToPublishRate: bool = False
    ratePeriodInSecond: int = 1


class _Policies(msgspec.Struct):
    publishMaxMessageRate: dict[str, _Publish] | None = None
    topicDispatchRate: dict[str, _Dispatch] | None = None
    resource_group_name: str | None = None


class _Group(msgspec.Struct):
    publishRateInMsgs: int | None = None
    publishRateInBytes: int | None = None
    dispatchRateInMsgs: int | None = None
    dispatchRateInBytes: int | None = None


def _publish(found: _Publish) -> Rate:
    return Rate(found.publishThrottlingRateInMsg, found.publishThrottlingRateInByte)


def _dispatch(found: _Dispatch) -> Rate:
    return Rate(
        found.dispatchThrottlingRateInMsg,
        found.dispatchThrottlingRateInByte,
        found.relativeToPublishRate,
        found.ratePeriodInSecond,
    )


def decode_rate(body: bytes, side: str) -> Rate | None:
    """A topic's publish or dispatch rate; None for an empty body or `null`: it has none. CodecError."""
    if body.strip() in (b"", b"null"):
        return None
    what = f"the {side} rate"
    return _publish(read(body, _Publish, what=what)) if side == PUBLISH else _dispatch(read(body, _Dispatch, what=what))


def encode_rate(rate: Rate, side: str) -> bytes:
    """The JSON of a rate."""
    if side == PUBLISH:
        return json.dumps(
            {"publishThrottlingRateInMsg": rate.messages, "publishThrottlingRateInByte": rate.size}
        ).encode()
    body: dict[str, Any] = {
        "dispatchThrottlingRateInMsg": rate.messages,
        "dispatchThrottlingRateInByte": rate.size,
        "relativeToPublishRate": rate.relative,
        "ratePeriodInSecond": rate.period,
    }
    return json.dumps(body).encode()


def decode_namespace_rates(body: bytes, cluster: str) -> tuple[Rate | None, Rate | None, str]:
    """Publish and dispatch rate of a namespace's topics in this cluster, and its ResourceGroup. CodecError."""
    found = read(body, _Policies, what="the policies of a namespace")
    publish = (found.publishMaxMessageRate or {}).get(cluster)
    dispatch = (found.topicDispatchRate or {}).get(cluster)
    return (
        _publish(publish) if publish is not None else None,
        _dispatch(dispatch) if dispatch is not None else None,
        found.resource_group_name or "",
    )


def decode_resource_group(body: bytes) -> ResourceGroup:
    """A ResourceGroup; rates that are not said are no limit. CodecError."""
    found = read(body, _Group, what="the resource group")
    given = (found.publishRateInMsgs, found.publishRateInBytes, found.dispatchRateInMsgs, found.dispatchRateInBytes)
    return ResourceGroup(*(-1 if value is None else value for value in given))


def encode_resource_group(group: ResourceGroup) -> bytes:
    """The JSON of a ResourceGroup. All four are said: what is left out would keep its old value."""
    body = {
        "publishRateInMsgs": group.publish_messages,
        "publishRateInBytes": group.publish_bytes,
        "dispatchRateInMsgs": group.dispatch_messages,
        "dispatchRateInBytes": group.dispatch_bytes,
    }
    return json.dumps(body).encode()
