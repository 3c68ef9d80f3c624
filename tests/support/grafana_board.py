"""The board of Grafana, conf/grafana/offsetlake.json, written by grafana-foundation-sdk: `make board`.

It stands on the metrics alone, not on the rules of conf/prometheus, and on a single data source. It shows
what one target tells, `$instance`, of one cluster, `$cluster`: groups of several may have the same names.
"""

import json
from pathlib import Path
from typing import Any, Final

from board_panels import picker
from board_rows import OF_GROUP, OF_TARGET, ROWS, of
from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from streaming.common.conf_dir import conf_dir

FILE: Final = conf_dir() / "grafana" / "offsetlake.json"

ANY_GROUP: Final = '{__name__=~"offsetlake_group_(info|last_commit_timestamp_seconds)", ' + OF_TARGET + "}"
"""Groups that are described, or have committed something; `offsetlake metrics` prints no counters."""

SCHEMA: Final = 39
"""Of Grafana 10.4; newer ones bring it along when they read it."""


def board() -> dict[str, Any]:
    """Return the board as Grafana imports it."""
    found = (
        dashboard.Dashboard("offsetlake")
        .uid("offsetlake")
        .description("Consumer groups as offsetlake knows them: what is right, lost, behind and at work.")
        .tags(["kafka", "offsetlake"])
        .timezone("browser")
        .time("now-3h", "now")
        .refresh("1m")
        .editable()
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(
            picker(
                "instance",
                "Serve",
                "label_values(offsetlake_info, instance)",
                "The offsetlake serve that is scraped.",
            )
        )
        .with_variable(
            picker(
                "cluster",
                "Cluster",
                'label_values(offsetlake_info{instance="$instance"}, cluster)',
                "The cluster, if the offsetlake serve has several ([[serve.clusters]]); otherwise none.",
            )
        )
        .with_variable(
            picker(
                "group",
                "Group",
                f"label_values({ANY_GROUP}, group)",
                "The group of the row about one group.",
            )
        )
        .with_variable(
            picker(
                "topic",
                "Topic",
                f"label_values({of('group_topic_position', OF_GROUP)}, topic)",
                "The topics of the row about one group.",
                is_multi=True,
            )
        )
    )
    for title, panels in ROWS.items():
        found.with_row(dashboard.Row(title))
        for panel in panels():
            found.with_panel(panel)
    document: dict[str, Any] = json.loads(json.dumps(found.build(), cls=JSONEncoder))
    for number, panel in enumerate(document["panels"], start=1):
        panel["id"] = number
    return document | {"schemaVersion": SCHEMA, "annotations": {"list": []}}


def text() -> str:
    """Return the board as its file holds it."""
    return json.dumps(board(), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write the file."""
    FILE.parent.mkdir(exist_ok=True)
    Path(FILE).write_text(text(), encoding="utf-8")
    print(f"wrote {FILE}")


if __name__ == "__main__":
    main()
