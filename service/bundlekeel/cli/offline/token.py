"""`bundlekeel token`: credentials for the API, made where they are needed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from bundlekeel.cli.exit_codes import guarded
from bundlekeel.settings.credentials import new_token

token_app = typer.Typer(no_args_is_help=True, help="Bearer tokens for the API.")


class Role(StrEnum):
    """Each may do what those before it may."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"


@token_app.callback()
def tokens() -> None:
    """Bearer tokens for the API."""


@token_app.command()
@guarded
def new(
    name: Annotated[str, typer.Argument(help="Whose it is; it stands in the journal.", show_default=False)],
    role: Annotated[Role, typer.Option("--role", help="What its owner may do.")] = Role.VIEWER,
) -> None:
    """Make a token: the first line is the token and is shown only now, the second belongs into api.auth.tokens_file."""
    token, line = new_token(name, role.value)
    typer.echo(f"token: {token}")
    typer.echo(f"line:  {line}")


def register(app: typer.Typer) -> None:
    """Put them into the app."""
    app.add_typer(token_app, name="token")
