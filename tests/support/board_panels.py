"""The panels of Grafana's board in three forms: a number of now, lines over time, and a table of now.

Each has a title, a description, a unit, and queries whose data source is the board's variable `datasource`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

DATASOURCE: Final = common_models.DataSourceRef(type_val="prometheus", uid="${datasource}")

GREEN, ORANGE, RED, PLAIN = "green", "orange", "red", "text"

Steps = Mapping[int, str] | Mapping[float, str]
"""From which value on a number has which colour; the first one is that of all below the second."""

Words = Mapping[str, tuple[str, str]]
"""What stands for a value, and in which colour."""

Builder = Any
"""Of a panel: the forms have no type in common."""


def number(
    title: str,
    expression: str,
    description: str,
    *,
    unit: str,
    steps: Steps | None = None,
    words: Words | None = None,
    legend: str = "",
    if_none: str = "none known",
    is_name: bool = False,
    width: int = 4,
) -> Builder:
    """Return a panel of one number as of now, or of one for each series, named by `legend`.

    Without steps or words it has no colour. `is_name`: not the number is shown but the legend.
    """
    panel = (
        _described(stat.Panel(), title, description, unit, width, 5)
        .color_mode(common_models.BigValueColorMode.VALUE)
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .text_mode(common_models.BigValueTextMode.NAME if is_name else common_models.BigValueTextMode.AUTO)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
        .thresholds(_thresholds(steps))
        .no_value(if_none)
        .with_target(_query(expression, legend).instant().ref_id("A"))
    )
    return panel.mappings([_worded(words)]) if words else panel


def lines(
    title: str,
    queries: Mapping[str, str],
    description: str,
    *,
    unit: str,
    width: int = 12,
    is_stacked: bool = False,
    height: int = 8,
) -> Builder:
    """Return a panel of lines over time; `queries` are expressions by the legend of their series."""
    panel = (
        _described(timeseries.Panel(), title, description, unit, width, height)
        .min(0)
        .line_width(1)
        .fill_opacity(30 if is_stacked else 5)
        .show_points(common_models.VisibilityMode.NEVER)
        .tooltip(
            common.VizTooltipOptions()
            .mode(common_models.TooltipDisplayMode.MULTI)
            .sort(common_models.SortOrder.DESCENDING)
        )
        .legend(
            common.VizLegendOptions()
            .display_mode(common_models.LegendDisplayMode.LIST)
            .placement(common_models.LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs([])
        )
    )
    if is_stacked:
        panel.stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
    for name, (legend, expression) in zip("ABCDEF", queries.items(), strict=False):
        panel.with_target(_query(expression, legend).range().ref_id(name))
    return panel


def rows(
    title: str,
    expression: str,
    description: str,
    *,
    unit: str,
    value: str,
    labels: Sequence[str] = ("group",),
    steps: Steps | None = None,
    words: Words | None = None,
    width: int = 12,
) -> Builder:
    """Return a table as of now: a row for each series, with its labels, and its value named `value`."""
    columns = [*labels, "Value"]
    renamed = {**{label: label.replace("_", " ").capitalize() for label in labels}, "Value": value}
    kept = models.DataTransformerConfig(id_val="filterFieldsByName", options={"include": {"names": columns}})
    order = models.DataTransformerConfig(
        id_val="organize",
        options={
            "indexByName": {name: place for place, name in enumerate(columns)},
            "renameByName": renamed,
        },
    )
    panel = (
        _described(table.Panel(), title, description, unit, width, 8)
        .thresholds(_thresholds(steps))
        .no_value("none known")
        .with_target(_query(expression, "").instant().format(PromQueryFormat.TABLE).ref_id("A"))
        .with_transformation(kept)
        .with_transformation(order)
        .show_header(True)
    )
    if steps or words:
        coloured = {"type": "color-text"}
        panel.override_by_name(
            value, [models.DynamicConfigValue(id_val="custom.cellOptions", value=coloured)]
        )
    return panel.mappings([_worded(words)]) if words else panel


def picker(name: str, label: str, query: str, description: str, *, is_multi: bool = False) -> Builder:
    """Return a variable whose values are those of a label, such as `label_values(up, instance)`.

    `is_multi`: several may be picked, or all of them (which is so at first).
    """
    variable = (
        dashboard.QueryVariable(name)
        .label(label)
        .description(description)
        .datasource(DATASOURCE)
        .query(query)
        .definition(query)
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(is_multi)
        .include_all(is_multi)
    )
    if is_multi:
        variable.all_value(".*").current(models.VariableOption(text="All", value="$__all", selected=True))
    return variable


def _described(panel: Builder, title: str, description: str, unit: str, width: int, height: int) -> Builder:
    return (
        panel.title(title)
        .description(description)
        .datasource(DATASOURCE)
        .unit(unit)
        .span(width)
        .height(height)
    )


def _query(expression: str, legend: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().datasource(DATASOURCE).expr(expression).legend_format(legend or "__auto")


def _thresholds(steps: Steps | None) -> dashboard.ThresholdsConfig:
    found = [models.Threshold(value=value, color=colour) for value, colour in (steps or {0: PLAIN}).items()]
    found[0].value = None
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(found)


def _worded(words: Words) -> models.ValueMap:
    results = {
        value: models.ValueMappingResult(text=text, color=colour, index=place)
        for place, (value, (text, colour)) in enumerate(words.items())
    }
    return models.ValueMap(options=results)
