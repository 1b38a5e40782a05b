"""Markdown tables, and templates in Markdown, for generated pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a Markdown table."""
    cells = [[str(cell).replace("|", "\\|") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]


def fill(template: str, **values: Any) -> str:
    """Return the text of a Jinja2 template in dev/templates with these values. Raises UndefinedError if a value is
    missing.
    """
    text = (Path(__file__).with_name("templates") / template).read_text(encoding="utf-8")
    environment = Environment(trim_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    return environment.from_string(text).render(values)
