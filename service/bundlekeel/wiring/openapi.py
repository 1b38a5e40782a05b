"""The OpenAPI document of all routes, with those of the installed features."""

from __future__ import annotations

import json
from typing import Any, cast

from bundlekeel.api.app import create_app
from bundlekeel.api.service import Service
from bundlekeel.wiring.features import routes


def openapi_document() -> dict[str, Any]:
    """Return the document of the unix-socket app, with all routes. The TCP app may lack those tagged `mutations`."""
    return create_app(cast(Service, None), mutations=True, features=routes()).openapi()


def openapi_text() -> str:
    """Return the text of config/openapi.json (`python -m dev.docs write`)."""
    return json.dumps(openapi_document(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
