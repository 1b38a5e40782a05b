"""The admin routes of quotas, answered by a `BrokerModel` behind real sockets."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from bundlekeel.quotas.rules.rate_plan import DISPATCH, PUBLISH, PolicyKey, Rate
from bundlekeel.quotas.rules.resource_group_plan import ResourceGroup
from tests.support.http_brokers import Answer, HttpBrokers, Seen
from tests.support.memory_admin import BrokerModel
from tests.support.quota_model import QuotaModel

SIDES = {"publishRate": PUBLISH, "dispatchRate": DISPATCH}
GROUP_FIELDS = ("publishRateInMsgs", "publishRateInBytes", "dispatchRateInMsgs", "dispatchRateInBytes")
Found = tuple[int, Any]


class HttpQuotaBrokers(HttpBrokers):
    """Brokers that also answer the routes of quotas."""

    def _from_model(self, broker: str, call: Seen) -> Answer:
        parts = [unquote(part) for part in call.path.strip("/").split("/")]
        reply = _quota_route(self.model, call.method, parts, call.body)
        if reply is None:
            return super()._from_model(broker, call)
        return Answer(status=reply[0], body=b"" if reply[1] is None else json.dumps(reply[1]).encode())


def _quota_route(model: BrokerModel, method: str, parts: list[str], body: bytes) -> Found | None:
    """Status and JSON body of a route of quotas, None for any other route. A body of None is empty."""
    quotas = model.quotas
    match (method, *parts):
        case (_, "admin", "v2", ("persistent" | "non-persistent") as domain, tenant, namespace, topic, rate) if (
            rate in SIDES
        ):
            place = PolicyKey(topic=f"{domain}://{tenant}/{namespace}/{topic}", side=SIDES[rate])
            return _topic_rate(quotas, method, place, body)
        case ("GET", "admin", "v2", "namespaces", tenant, namespace):
            return 200, _policies(model, f"{tenant}/{namespace}")
        case (_, "admin", "v2", "resourcegroups", name):
            return _resource_group(quotas, method, name, body)
        case ("POST", "admin", "v2", "namespaces", tenant, namespace, "resourcegroup", name):
            return _refused(quotas.attach(f"{tenant}/{namespace}", name))
        case ("DELETE", "admin", "v2", "namespaces", tenant, namespace, "resourcegroup"):
            return _refused(quotas.attach(f"{tenant}/{namespace}", ""))
    return None


def _topic_rate(quotas: QuotaModel, method: str, place: PolicyKey, body: bytes) -> Found:
    refusal = quotas.refusal(place.topic)
    if refusal is not None:
        return _refused(refusal)
    if method == "GET":
        rate = quotas.rates.get(place)
        return (204, None) if rate is None else (200, _rate(rate, place.side))
    quotas.set_rate(place, None if method == "DELETE" else _rate_of(json.loads(body), place.side))
    return 204, None


def _resource_group(quotas: QuotaModel, method: str, name: str, body: bytes) -> Found:
    if method == "GET":
        group = quotas.groups.get(name)
        if group is None:
            return 404, {"reason": "ResourceGroup does not exist"}
        return 200, dict(zip(GROUP_FIELDS, group, strict=True))
    if method == "DELETE":
        return _refused(quotas.remove_group(name))
    document = json.loads(body)
    quotas.groups[name] = ResourceGroup(*(document[field] for field in GROUP_FIELDS))
    return 204, None


def _policies(model: BrokerModel, namespace: str) -> dict[str, Any]:
    """Return part of a namespace's policies, as brokers report it."""
    cluster = model.static[model.brokers[0]]["clusterName"]
    rates = model.quotas.namespaces.get(namespace)
    document: dict[str, Any] = {"replication_clusters": [cluster], "deleted": False, "publishMaxMessageRate": {}}
    if rates is not None and rates.publish is not None:
        document["publishMaxMessageRate"] = {cluster: _rate(rates.publish, PUBLISH), "elsewhere": {}}
    if rates is not None and rates.dispatch is not None:
        document["topicDispatchRate"] = {cluster: _rate(rates.dispatch, DISPATCH)}
    group = model.quotas.attached.get(namespace)
    return document | ({"resource_group_name": group} if group else {})


def _rate(rate: Rate, side: str) -> dict[str, Any]:
    document: dict[str, Any] = {f"{side}ThrottlingRateInMsg": rate.messages, f"{side}ThrottlingRateInByte": rate.size}
    if side == DISPATCH:
        document |= {"relativeToPublishRate": rate.relative, "ratePeriodInSecond": rate.period}
    return document


def _rate_of(document: dict[str, Any], side: str) -> Rate:
    messages, size = document[f"{side}ThrottlingRateInMsg"], document[f"{side}ThrottlingRateInByte"]
    return Rate(messages, size, document.get("relativeToPublishRate", False), document.get("ratePeriodInSecond", 1))


def _refused(refusal: tuple[int, str] | None) -> Found:
    return (204, None) if refusal is None else (refusal[0], {"reason": refusal[1]})
