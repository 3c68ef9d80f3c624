"""The clusters of `[[serve.clusters]]`, and the settings of each."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from streaming.model.errors import MisuseError
from streaming.model.suggestions import did_you_mean, nearest
from streaming.settings.model import Settings

CLUSTER_LABEL: Final = "cluster"
"""The label of every series that has the name of its cluster."""


def settings_by_cluster(settings: Settings) -> Mapping[str, Settings]:
    """Return the settings of each cluster by its name, with its `table_root` as `[tables] root`; if no
    cluster is named, the settings as they are, by an empty name."""
    return {one.name: _at(settings, one.table_root) for one in settings.serve.clusters} or {"": settings}


def settings_of_cluster(settings: Settings, name: str, *, where: str) -> Settings:
    """Return the settings of one cluster; raises `MisuseError`, which begins with `where` the name is from,
    for an unknown one."""
    known = [one.name for one in settings.serve.clusters]
    if not known:
        raise MisuseError(
            f"{where}: expected [[serve.clusters]] in the settings, found none. Add {name!r} with its "
            "table_root there, in the file of --config."
        )
    if name not in known:
        raise MisuseError(
            f"{where}: expected a cluster of [[serve.clusters]] ({', '.join(known)}), found {name!r}."
            f"{did_you_mean(nearest(name, known))}"
        )
    return settings_by_cluster(settings)[name]


def _at(settings: Settings, table_root: str) -> Settings:
    return replace(settings, tables=replace(settings.tables, root=table_root))
