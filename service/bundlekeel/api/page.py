"""The web page at `/ui/`: static files in this package, built from `ui/`.

The files contain no secrets, so they need no credentials: the page calls the API with the token of its user. The
browser may run only scripts and styles of this server for the page, and send requests only to this server.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from fastapi import Response
from fastapi.responses import RedirectResponse
from starlette.exceptions import HTTPException

from bundlekeel.api.admission import ANYBODY, router_for

HOME: Final = "/ui/"
TYPES: Final[Mapping[str, str]] = {
    "index.html": "text/html; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

router = router_for(ANYBODY, include_in_schema=False)


@router.get("/")
@router.get("/ui")
async def home() -> Response:
    """Redirect to the web page at `/ui/`."""
    return RedirectResponse(HOME)


@router.get(HOME)
async def index() -> Response:
    """Return the HTML of the web page."""
    return _file("index.html")


@router.get(HOME + "{name}")
async def file(name: str) -> Response:
    """Return a file of the web page."""
    if name not in TYPES:
        raise HTTPException(404, f"the page has no file {name!r}")
    return _file(name)


def _file(name: str) -> Response:
    data = files("bundlekeel.api").joinpath("static", name).read_bytes()
    # No caching: after an update of the sidecar, browsers must not use the old page.
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Content-Type": TYPES[name]}
    return Response(data, headers=headers)
