"""Render self-contained HTML pages from Jinja2 templates, with matplotlib plots as inline SVG.

Needs the extra `plots`.
"""

from __future__ import annotations

from io import StringIO
from typing import Any, Final

import matplotlib as mpl
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

# All colors here are readable on a white and on a dark page.
INK: Final = "#7b7b7b"
GOOD: Final = "#1f9d61"
BAD: Final = "#dc4437"
COLOURS: Final = ("#3f7fe8", "#d9730d", "#1a9f7a", "#b5449b", "#a07f00", "#7f6be0", "#c0392b", "#0e8fa8")
_NO_METADATA: Final = dict.fromkeys(("Creator", "Date", "Format", "Type"))

mpl.rcParams.update(
    {
        # With a constant salt, equal figures give equal SVG texts.
        "svg.hashsalt": "bundlekeel",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 8,
        "axes.titlesize": 8,
        **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "grid.color", "text.color", "xtick.color"), INK),
        "ytick.color": INK,
        **dict.fromkeys(("axes.facecolor", "figure.facecolor", "savefig.facecolor"), "none"),
        **dict.fromkeys(("axes.spines.right", "axes.spines.top", "legend.frameon"), False),
        "axes.grid": True,
        "axes.prop_cycle": f"cycler(color={COLOURS})",
        "grid.alpha": 0.3,
        "lines.linewidth": 1.2,
    }
)


def render(template: str, *packages: str, **values: Any) -> str:
    """Render `template` from the folder `templates` of this package, or of `packages`, which can extend `page.html`."""
    loader = ChoiceLoader([PackageLoader(name) for name in ("bundlekeel.simulator", *packages)])
    pages = Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined)
    return pages.get_template(template).render(values) + "\n"


def svg(figure: Figure) -> str:
    """Return a matplotlib figure as an SVG element."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata=_NO_METADATA)
    return text.getvalue()[text.getvalue().index("<svg") :]
