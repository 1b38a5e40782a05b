"""Faults of requests for quota groups name the field of the request."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from bundlekeel.model.errors import ConfigError
from tests.support.spied import Spied
from tests.unit.api.test_faults import WHO, refused


@pytest.mark.parametrize(
    ("error", "field", "detail"),
    [
        (
            ConfigError("quotas.groups.acme.members = 't:x': unknown", field="quotas.groups.acme.members", value="t:x"),
            "members",
            "members = 't:x': unknown",
        ),
        (
            ConfigError("quotas.groups.acme: limits nothing", field="quotas.groups.acme"),
            "body",
            "body: limits nothing",
        ),
        (
            ConfigError("quotas.groups.acme = 'acme': not a name", field="quotas.groups.acme", value="acme"),
            "name",
            "name = 'acme': not a name",
        ),
        (
            ConfigError("quotas.groups.b.members: has none", field="quotas.groups.b.members"),
            "quotas.groups.b.members",
            "quotas.groups.b.members: has none",
        ),
    ],
)
async def test_a_quota_group_names_the_field_of_the_request(
    service: Spied, error: ConfigError, field: str, detail: str
) -> None:
    """Not its place in a settings file, unless it is about another group there."""
    service.fail["quotas.put"] = error
    body = {**WHO, "members": ["t:x"], "publish_bytes": 5e7}
    problem = await refused("PUT", "quotas/acme", body, service)
    assert (problem["field"], problem["errors"][0]["field"], problem["detail"]) == (field, field, detail)


@pytest.mark.parametrize(("options", "size"), [("10MB", 1e7), ("1MiB", 1048576.0), (5000, 5000.0), ("5000", 5000.0)])
async def test_bytes_may_have_a_unit(http: httpx.AsyncClient, service: Spied, options: Any, size: float) -> None:
    answer = await http.put("/api/v1/quotas/acme", json={**WHO, "members": ["t:acme"], "dispatch_bytes": options})
    assert answer.status_code == 200, answer.text
    assert service.calls[-1][1]["group"].limits.dispatch_bytes == answer.json()["limits"]["dispatch_bytes"] == size


async def test_bytes_without_sense_are_refused_with_what_is_allowed() -> None:
    """With the words of the settings file."""
    problem = await refused("PUT", "quotas/acme", {**WHO, "members": ["t:a"], "publish_bytes": "10 parsecs"})
    (fault,) = problem["errors"]
    assert fault == {
        "field": "publish_bytes",
        "reason": "not a number of bytes",
        "value": "10 parsecs",
        "allowed": "bytes like 500000, 500kB, 10MB or 1MiB",
    }
