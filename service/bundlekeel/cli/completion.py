"""Shell completion: brokers, bundles and namespaces that a sidecar knows, and names that the program ships.

Without an answer of a sidecar nothing is completed and nothing is printed: a message would land in the command line.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from bundlekeel.cli.client import Client, CredentialFiles, connect
from bundlekeel.cli.exit_codes import CliError
from bundlekeel.core.model.errors import BundlekeelError
from bundlekeel.core.model.parameter_table import PLACEMENTS, STRATEGIES

# As many as a shell shows before it asks.
_MOST = 1000

# What the shell asks for is imported then: most commands need neither the simulator nor the settings.


def brokers(context: typer.Context, incomplete: str) -> list[str]:
    """Registered brokers."""
    return _begin_with(incomplete, [str(row["broker"]) for row in _asked(context, "brokers")])


def bundles(context: typer.Context, incomplete: str) -> list[str]:
    """Bundles, the largest first."""
    return _begin_with(incomplete, [str(row["bundle"]) for row in _asked(context, "bundles", limit=_MOST)])


def namespaces(context: typer.Context, incomplete: str) -> list[str]:
    """Namespaces of the largest bundles."""
    found = {str(row["bundle"]).rpartition("/")[0] for row in _asked(context, "bundles", limit=_MOST)}
    return _begin_with(incomplete, sorted(found))


def places(context: typer.Context, incomplete: str) -> list[str]:
    """Namespaces, then bundles."""
    return [*namespaces(context, incomplete), *bundles(context, incomplete)]


def anything(context: typer.Context, incomplete: str) -> list[str]:
    """Brokers, then bundles."""
    return [*brokers(context, incomplete), *bundles(context, incomplete)]


def scenarios(incomplete: str) -> list[str]:
    """Shipped scenarios of the simulator."""
    suite = import_module("bundlekeel.cli.offline.sim_files").suite
    return _begin_with(incomplete, [item.name for item in suite()])


def strategies(incomplete: str) -> list[str]:
    """Strategies that decide what moves."""
    return _begin_with(incomplete, [*STRATEGIES])


def placements(incomplete: str) -> list[str]:
    """Placements that decide where to."""
    return _begin_with(incomplete, [*PLACEMENTS])


def parameters(incomplete: str) -> list[str]:
    """`name=` of every parameter."""
    rows = import_module("bundlekeel.settings.describe").parameter_rows()
    return _begin_with(incomplete, [f"{row['name']}=" for row in rows])


def _begin_with(incomplete: str, names: list[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _asked(context: typer.Context, path: str, **query: Any) -> list[Any]:
    try:
        with _client(context) as client:
            return list(client.get(path, **query))
    except (CliError, BundlekeelError):
        return []


def _client(context: typer.Context) -> Client:
    """That of the options typed so far, else of the environment and the settings."""

    def path(name: str) -> Path | None:
        given = context.params.get(name)
        return Path(given) if given else None

    credentials = CredentialFiles(
        token_file=path("token_file"), trust_certs=path("tls_ca"), cert=path("tls_cert"), key=path("tls_key")
    )
    return connect(context.params.get("url"), path("socket"), path("config"), credentials)
