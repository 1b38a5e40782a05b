"""`python -m bundlekeel.api.openapi [FILE]`: the OpenAPI document, as committed in config/openapi.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, cast

from bundlekeel.api.app import create_app
from bundlekeel.daemon.answers.service import Service


def openapi_document() -> dict[str, Any]:
    """The document of the unix-socket app: all routes there are. The TCP app lacks those tagged `mutations`."""
    return create_app(cast(Service, None), mutations=True).openapi()


def openapi_text() -> str:
    """The document as it is committed."""
    return json.dumps(openapi_document(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main(arguments: list[str]) -> None:
    """Write to the named file, or to standard output."""
    if arguments:
        Path(arguments[0]).write_text(openapi_text(), encoding="utf-8")
    else:
        sys.stdout.write(openapi_text())


if __name__ == "__main__":
    main(sys.argv[1:])
