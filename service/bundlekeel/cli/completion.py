"""Shell completion of brokers, bundles and namespaces from a sidecar, and of names that the program contains.

If no sidecar responds, it completes nothing and prints nothing: a message would appear in the command line.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from bundlekeel.cli.client import Client, CredentialFiles, connect
from bundlekeel.cli.exit_codes import CliError
from bundlekeel.model.errors import BundlekeelError
from bundlekeel.model.parameter_table import PLACEMENTS, STRATEGIES

# Shells ask before they show more completions than this.
_MOST = 1000

# These functions import modules themselves, because most commands use neither the simulator nor the settings.


def brokers(context: typer.Context, incomplete: str) -> list[str]:
    """Return the registered brokers."""
    return _begin_with(incomplete, [str(row["broker"]) for row in _fetch_rows(context, "brokers")])


def bundles(context: typer.Context, incomplete: str) -> list[str]:
    """Return the bundles, those with the most load first."""
    return _begin_with(incomplete, [str(row["bundle"]) for row in _fetch_rows(context, "bundles", limit=_MOST)])


def namespaces(context: typer.Context, incomplete: str) -> list[str]:
    """Return the namespaces of the bundles with the most load."""
    names = {str(row["bundle"]).rpartition("/")[0] for row in _fetch_rows(context, "bundles", limit=_MOST)}
    return _begin_with(incomplete, sorted(names))


def places(context: typer.Context, incomplete: str) -> list[str]:
    """Return namespaces, then bundles."""
    return [*namespaces(context, incomplete), *bundles(context, incomplete)]


def anything(context: typer.Context, incomplete: str) -> list[str]:
    """Return brokers, then bundles."""
    return [*brokers(context, incomplete), *bundles(context, incomplete)]


def strategies(incomplete: str) -> list[str]:
    """Return the strategies that select bundles to move."""
    return _begin_with(incomplete, [*STRATEGIES])


def placements(incomplete: str) -> list[str]:
    """Return the placements that select destinations."""
    return _begin_with(incomplete, [*PLACEMENTS])


def parameters(incomplete: str) -> list[str]:
    """Return each parameter as `name=`, for `--set`."""
    rows = import_module("bundlekeel.settings.describe").parameter_rows()
    return _begin_with(incomplete, [f"{row['name']}=" for row in rows])


def _begin_with(incomplete: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _fetch_rows(context: typer.Context, path: str, **query: Any) -> list[Any]:
    try:
        with _client(context) as client:
            return list(client.get(path, **query))
    except (CliError, BundlekeelError):
        return []


def _client(context: typer.Context) -> Client:
    """Return a client for the sidecar that the typed options, or else the environment and the settings, select."""

    def path(name: str) -> Path | None:
        value = context.params.get(name)
        return Path(value) if value else None

    credentials = CredentialFiles(
        token_file=path("token_file"), trust_certs=path("tls_ca"), cert=path("tls_cert"), key=path("tls_key")
    )
    return connect(context.params.get("url"), path("socket"), path("config"), credentials)
