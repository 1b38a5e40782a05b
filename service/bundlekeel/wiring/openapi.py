"""The OpenAPI document of all routes, including the routes of the installed features."""

from __future__ import annotations

import json
from typing import Any, cast

from bundlekeel.api.app import create_app
from bundlekeel.api.service import Service
from bundlekeel.wiring.features import routes


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of the unix socket's app, because only this app always has all routes."""
    return create_app(cast(Service, None), mutations=True, features=routes()).openapi()


def openapi_text() -> str:
    """Return the text of config/openapi.json, which `python -m dev.docs write` writes."""
    return json.dumps(openapi_document(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
