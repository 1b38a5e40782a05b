"""The API and the command line with the routes and commands of all features, as `wiring` builds them."""

from __future__ import annotations

from typing import Any, Final

import typer
from fastapi import FastAPI

from bundlekeel import api
from bundlekeel.cli import app as cli
from bundlekeel.wiring.features import commands, routes

ROUTES: Final = routes()


def create_app(service: Any, **options: Any) -> FastAPI:
    """Return the API over a service."""
    return api.create_app(service, features=ROUTES, **options)


def make_app(wiring: Any) -> typer.Typer:
    """Return the command line."""
    return cli.make_app(wiring, commands())
