"""Panels and dashboards in the few words that ours need, over Grafana's own builders.

In a query `@` stands for the choice of cluster, job and instance: `bundlekeel_leader{@}`, `x{@,code="y"}`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, statetimeline, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, StackingMode, VizOrientation
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableOption,
    VariableRefresh,
)

CHOSEN: Final = 'cluster=~"$cluster",job=~"$job",instance=~"$instance"'
VARIABLES: Final = ("cluster", "job", "instance")
TAG: Final = "bundlekeel"
_SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")

Kind = Literal["lines", "stacked", "number", "bars", "states"]
# A query and its legend.
Query = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `unit` is Grafana's word; `limits`: values from which it is yellow, and red; `bottom`, `top`: the ends
    of its axis, None: by the data."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: Kind = "lines"
    span: int = 8
    limits: tuple[float, float] | None = None
    bottom: float | None = 0.0
    top: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A titled row of panels."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """One dashboard."""

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]


def rendered(page: Page) -> str:
    """The dashboard's JSON as it is committed."""
    board = (
        dashboard.Dashboard(page.title)
        .uid(page.uid)
        .description(page.description)
        .tags([TAG])
        .timezone("browser")
        .time("now-3h", "now")
        .refresh("30s")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .readonly()
        .link(
            dashboard.DashboardLink("Bundlekeel")
            .type(DashboardLinkType.DASHBOARDS)
            .tags([TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for name in VARIABLES:
        board = board.with_variable(_variable(name))
    number = 0
    for row in page.rows:
        number += 1
        board = board.with_row(dashboard.Row(row.title).id(number))
        for panel in row.panels:
            number += 1
            board = board.with_panel(_panel(panel, number))
    return json.dumps(board.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _variable(name: str) -> dashboard.QueryVariable:
    """All values by default; a scrape without the label `cluster` is among them."""
    return (
        dashboard.QueryVariable(name)
        .label(name.capitalize())
        .datasource(_SOURCE)
        .query(f"label_values(bundlekeel_build_info, {name})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(VariableOption(text="All", value="$__all"))
    )


AnyPanel = timeseries.Panel | stat.Panel | bargauge.Panel | statetimeline.Panel


def _panel(given: Panel, number: int) -> AnyPanel:
    panel = _shape(given)
    panel = (
        panel.id(number)
        .title(given.title)
        .description(given.description)
        .datasource(_SOURCE)
        .unit(given.unit)
        .span(given.span)
        .height(4 if given.kind == "number" else 8)
    )
    if given.bottom is not None:
        panel = panel.min(given.bottom)
    if given.top is not None:
        panel = panel.max(given.top)
    if given.limits is not None:
        yellow, red = given.limits
        steps = [Threshold(None, "green"), Threshold(yellow, "yellow"), Threshold(red, "red")]
        panel = panel.thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
    for index, (expr, legend) in enumerate(given.queries):
        query = prometheus.Dataquery().expr(selected(expr)).legend_format(legend).ref_id(chr(ord("A") + index))
        panel = panel.with_target(query.instant() if given.kind in ("number", "bars") else query.range())
    return panel


def _shape(given: Panel) -> AnyPanel:
    legend = common.VizLegendOptions().show_legend(True).placement(LegendPlacement.BOTTOM)
    legend = legend.display_mode(LegendDisplayMode.LIST)
    if given.kind == "number":
        return stat.Panel()
    if given.kind == "bars":
        return bargauge.Panel().orientation(VizOrientation.HORIZONTAL)
    if given.kind == "states":
        return statetimeline.Panel().legend(legend)
    lines = timeseries.Panel().legend(legend).fill_opacity(10)
    if given.kind == "stacked":
        return lines.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(40)
    return lines


def selected(expr: str) -> str:
    """The query with the choice of cluster, job and instance in the place of `@`."""
    return expr.replace("@", CHOSEN)


def queries(pages: Sequence[Page]) -> list[tuple[str, str]]:
    """Every (place, query) of these dashboards, the choice filled in."""
    return [
        (f"{page.uid}/{panel.title}", selected(expr))
        for page in pages
        for row in page.rows
        for panel in row.panels
        for expr, _ in panel.queries
    ]
