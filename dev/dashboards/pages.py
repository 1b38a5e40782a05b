"""All dashboards with the files they are written to."""

from __future__ import annotations

from functools import partial

from dev.dashboards import actions, calibration, decisions, health, overview
from dev.dashboards.kit import Page, rendered
from dev.docs import Page as FilePage

DASHBOARDS: tuple[Page, ...] = (overview.PAGE, decisions.PAGE, actions.PAGE, health.PAGE, calibration.PAGE)

PAGES: list[FilePage] = [(f"deploy/dashboards/{page.uid}.json", partial(rendered, page)) for page in DASHBOARDS]
