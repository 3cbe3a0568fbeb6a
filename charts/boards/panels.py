"""A dashboard as rows of panels, each a question with its queries; Grafana's own library writes the JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, dashboard, prometheus, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, StackingMode, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    DataTransformerConfig,
    VariableHide,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
WIDTH, HEIGHT = 24, 8
ABOUT = 'namespace="$namespace", service="$service"'  # the service that a dashboard is about


@dataclass(frozen=True)
class Panel:
    """One question. `queries` are by legend; a line between braces is a label's value."""

    title: str
    meaning: str
    unit: str  # Grafana's name of it: s, percentunit, reqps, short …
    queries: Mapping[str, str]
    columns: Mapping[str, str] | None = None  # a table of the newest values, its labels and values by heading
    stacked: bool = False


@dataclass(frozen=True)
class Board:
    """A dashboard. `of` are its choices by name, each the PromQL metric or selector whose label values are offered."""

    name: str  # of the file
    title: str
    rows: Mapping[str, tuple[Panel, ...]]
    of: Mapping[str, str]
    moments: Mapping[str, str]  # marks on every panel: what they say → when they are set (a value above 0)

    def json(self) -> str:
        """The dashboard as Grafana reads it."""
        made = dashboard.Dashboard(self.title).uid(f"steelyard-{self.name}").tags(["steelyard"]).readonly()
        made.time("now-1h", "now").refresh("10s").tooltip(DashboardCursorSync.CROSSHAIR)
        made.with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
        for name, metric in self.of.items():
            made.with_variable(_choice(name, metric))
        for words, query in self.moments.items():
            made.annotation(_mark(words, query))
        for title, panels in self.rows.items():
            made.with_row(dashboard.Row(title))
            for panel in panels:
                made.with_panel(_panel(panel, WIDTH // min(3, len(panels))))
        return JSONEncoder(sort_keys=True, indent=1).encode(made.build()) + "\n"


def _choice(name: str, metric: str) -> dashboard.QueryVariable:
    choice = dashboard.QueryVariable(name).label(name).datasource(SOURCE)
    choice.query(f"label_values({metric}, {name})").refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    return choice.hide(VariableHide.DONT_HIDE)


def _mark(words: str, query: str) -> dashboard.AnnotationQuery:
    return dashboard.AnnotationQuery().name(words).datasource(SOURCE).enable(True).icon_color("orange").expr(query)


def _panel(panel: Panel, span: int) -> timeseries.Panel | table.Panel:
    made = _table(panel) if panel.columns is not None else _lines(panel)
    made.title(panel.title).description(panel.meaning).unit(panel.unit).datasource(SOURCE).span(span).height(HEIGHT)
    for letter, (legend, query) in zip("ABCDEFGH", panel.queries.items(), strict=False):
        target = prometheus.Dataquery().expr(query).legend_format(legend).ref_id(letter)
        made.with_target(
            target.instant().format(PromQueryFormat.TABLE) if panel.columns is not None else target.range()
        )
    return made


def _lines(panel: Panel) -> timeseries.Panel:
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
    made = timeseries.Panel().min(0).line_width(1).fill_opacity(30 if panel.stacked else 5)
    made.legend(legend.show_legend(True)).tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    return made.stacking(common.StackingConfig().mode(StackingMode.NORMAL)) if panel.stacked else made


def _table(panel: Panel) -> table.Panel:
    """One row a service: the queries are joined by their labels, and only the named columns stay."""
    columns = panel.columns or {}
    hidden = {"Time": True, "__name__": True}
    order = {name: place for place, name in enumerate(columns)}
    organised = {"excludeByName": hidden, "renameByName": dict(columns), "indexByName": order}
    made = table.Panel().show_header(True)
    made.with_transformation(DataTransformerConfig(id_val="merge", options={}))
    return made.with_transformation(DataTransformerConfig(id_val="organize", options=organised))
