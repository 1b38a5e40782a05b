"""Each fault of a request is listed in `errors`, whichever check detects it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.apps import create_app
from tests.support.shop import Shop

WHO = {"reason": "r", "by": "ann"}


async def refused(method: str, path: str, body: Any = None, service: Any = None) -> dict[str, Any]:
    """The problem that is answered."""
    app = create_app(service or (await Shop().open()).service, mutations=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://localhost") as http:
        answer = await http.request(method, f"/api/v1/{path}", json=body)
    assert answer.status_code == 422, answer.text
    counts: dict[str, Any] = answer.json()
    return counts


@pytest.mark.parametrize(
    ("method", "path", "body", "fault"),
    [
        ("GET", "journal?limit=0", None, {"field": "limit", "value": "0", "allowed": "1 or more"}),
        ("GET", "bundles?limt=1", None, {"field": "limt", "value": "1", "allowed": "broker, namespace, after, limit"}),
        (
            "GET",
            "where?name=shop/orders&listener=b",
            None,
            {"field": "listener", "value": "b", "allowed": "none (advertisedListeners is not set)"},
        ),
        ("POST", "plans", {"traffic_scale": -1}, {"field": "traffic_scale", "value": -1, "allowed": "more than 0"}),
        ("POST", "plans", {"add_brokers": {}}, {"field": "add_brokers", "allowed": "a valid list"}),
        ("POST", "pause", {}, {"field": "reason"}),
        ("POST", "pause", {**WHO, "untill": 0}, {"field": "untill"}),
        (
            "PUT",
            "mode",
            {**WHO, "mode": "on"},
            {"field": "mode", "value": "on", "allowed": "'observe', 'recommend' or 'act'"},
        ),
    ],
)
async def test_each_fault_has_field_reason_value_and_what_is_allowed(
    method: str, path: str, body: Any, fault: dict[str, Any]
) -> None:
    problem = await refused(method, path, body)
    (result,) = problem["errors"]
    assert result.pop("reason") and result == fault
    assert {name: problem[name] for name in fault} == fault


async def test_every_fault_is_listed_with_its_own_value() -> None:
    """In the order in which they were found."""
    problem = await refused("POST", "plans", {"traffic_scale": -1, "remove_brokers": ["b", 5], "stratagy": "avg"})
    assert [(fault["field"], fault.get("value")) for fault in problem["errors"]] == [
        ("remove_brokers.1", 5),
        ("traffic_scale", -1),
        ("stratagy", None),
    ]
    assert problem["detail"].endswith(
        "; traffic_scale = -1: must be more than 0; "
        "stratagy: not a field of this request; /api/v1/openapi.json lists its fields"
    )
    assert (problem["field"], problem["value"]) == ("remove_brokers.1", 5)
