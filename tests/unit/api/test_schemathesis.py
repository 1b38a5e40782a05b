"""The OpenAPI document and the app agree: whatever is sent, no 5xx and no answer that is not in the document."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from bundlekeel.api.routes.events import EventStreams
from tests.support.apps import create_app
from tests.support.security import Tokens, access_for
from tests.support.shop import Shop

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
HOSTS = ("testserver",)
# A stream of events ends at once: each answer is read to its end.
SHORT = 0.001
# The app of a leader, and the statuses that each kind of its callers ("": without credentials) must get at least once.
# So the test is known to have reached more than refusals.
Kind = tuple[Callable[[Tokens], FastAPI], dict[str, set[int]]]


def open_app(_tokens: Tokens) -> FastAPI:
    return create_app(
        asyncio.run(Shop().open()).service, mutations=True, allowed_hosts=HOSTS, streams=EventStreams(seconds=SHORT)
    )


def reading_app(_tokens: Tokens) -> FastAPI:
    return create_app(
        asyncio.run(Shop().open()).service, mutations=False, allowed_hosts=HOSTS, streams=EventStreams(seconds=SHORT)
    )


def guarded_app(tokens: Tokens) -> FastAPI:
    access = access_for(tokens, failures_per_minute=10_000)
    return create_app(
        asyncio.run(Shop().open()).service,
        mutations=True,
        access=access,
        allowed_hosts=HOSTS,
        streams=EventStreams(seconds=SHORT),
    )


KINDS: dict[str, Kind] = {
    "socket": (open_app, {"": {200, 404, 409, 422}}),
    "open-reads": (reading_app, {"": {200, 404, 422}}),
    "guarded": (
        guarded_app,
        {
            "": {200, 401},
            "viewer": {200, 403, 404, 422},
            "operator": {200, 403, 404, 422},
            "admin": {200, 404, 409, 422},
        },
    ),
}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    """One a role."""
    return Tokens(tmp_path_factory.mktemp("tokens"))


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_undocumented(tokens: Tokens, kind: str) -> None:
    """Valid and invalid values in every operation, each of them from every kind of caller."""
    attack(tokens, *KINDS[kind], examples=2)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_undocumented_in_many_tries(tokens: Tokens, kind: str) -> None:
    attack(tokens, *KINDS[kind], examples=300)


def attack(tokens: Tokens, make: Callable[[Tokens], FastAPI], callers: dict[str, set[int]], *, examples: int) -> None:
    """Send `count` requests of each mode to each operation and count the status codes."""
    app = make(tokens)
    headers = {role: tokens.headers(role) if role else {} for role in callers}
    schema: Any = schemathesis.openapi.from_asgi("/api/v1/openapi.json", app, headers=headers.get("viewer", {}))
    current: dict[str, set[int]] = {role: set() for role in callers}
    results = [result.ok() for result in schema.get_all_operations()]
    assert len(results) > 20
    for operation in results:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            strategy = operation.as_strategy(generation_mode=mode)

            @settings(
                max_examples=examples,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.explicit, Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=strategy)
            def one(case: Any) -> None:
                for role, output in headers.items():
                    answer = case.call(headers=output)
                    current[role].add(answer.status_code)
                    case.validate_response(answer, checks=CHECKS)

            # Where any text will do there is nothing invalid to send.
            with suppress(Unsatisfiable) if mode is GenerationMode.NEGATIVE else nullcontext():
                one()
    for role, expected in callers.items():
        assert expected <= current[role], role
