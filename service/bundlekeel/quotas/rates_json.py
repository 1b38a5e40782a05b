"""Converts Pulsar's JSON of publish and dispatch rates, and of ResourceGroups."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from bundlekeel.pulsar.formats.external_input import read
from bundlekeel.quotas.rules.rate_plan import PUBLISH, Rate
from bundlekeel.quotas.rules.resource_group_plan import ResourceGroup


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


def _publish(rate: _Publish) -> Rate:
    return Rate(rate.publishThrottlingRateInMsg, rate.publishThrottlingRateInByte)


def _dispatch(rate: _Dispatch) -> Rate:
    return Rate(
        rate.dispatchThrottlingRateInMsg,
        rate.dispatchThrottlingRateInByte,
        rate.relativeToPublishRate,
        rate.ratePeriodInSecond,
    )


def decode_rate(body: bytes, side: str) -> Rate | None:
    """Return a topic's publish or dispatch rate (`side`); None if the body is empty or `null`: the topic has no policy.

    Raises CodecError if the body is malformed.
    """
    if body.strip() in (b"", b"null"):
        return None
    what = f"the {side} rate"
    return _publish(read(body, _Publish, what=what)) if side == PUBLISH else _dispatch(read(body, _Dispatch, what=what))


def encode_rate(rate: Rate, side: str) -> bytes:
    """Return the JSON of a publish or dispatch rate (`side`)."""
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
    """Return the publish rate, dispatch rate and ResourceGroup in a namespace's policies; None, None, "": not set.

    Raises CodecError if the body is malformed.
    """
    policies = read(body, _Policies, what="the policies of a namespace")
    publish = (policies.publishMaxMessageRate or {}).get(cluster)
    dispatch = (policies.topicDispatchRate or {}).get(cluster)
    return (
        _publish(publish) if publish is not None else None,
        _dispatch(dispatch) if dispatch is not None else None,
        policies.resource_group_name or "",
    )


def decode_resource_group(body: bytes) -> ResourceGroup:
    """Return a ResourceGroup; a missing rate means no limit. Raises CodecError if the body is malformed."""
    group = read(body, _Group, what="the resource group")
    rates = (group.publishRateInMsgs, group.publishRateInBytes, group.dispatchRateInMsgs, group.dispatchRateInBytes)
    return ResourceGroup(*(-1 if value is None else value for value in rates))


def encode_resource_group(group: ResourceGroup) -> bytes:
    """Return the JSON of a ResourceGroup, always with all four rates: Pulsar keeps the old value of a missing rate."""
    body = {
        "publishRateInMsgs": group.publish_messages,
        "publishRateInBytes": group.publish_bytes,
        "dispatchRateInMsgs": group.dispatch_messages,
        "dispatchRateInBytes": group.dispatch_bytes,
    }
    return json.dumps(body).encode()
