"""The clusters of `[[serve.clusters]]`, and the settings of each."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from streaming.model.errors import MisuseError
from streaming.model.suggestions import did_you_mean, nearest
from streaming.settings.model import ClusterSettings, Settings

CLUSTER_LABEL: Final = "cluster"
"""The label of every series that has the name of its cluster."""


def settings_by_cluster(settings: Settings) -> Mapping[str, Settings]:
    """Return the settings of each cluster by its name, with its `table_root` as `[tables] root`, and
    `brokers_to_fill_in` as its brokers, which are not known; if no cluster is named, the settings as they
    are, by an empty name."""
    return {one.name: _of(settings, one) for one in settings.serve.clusters} or {"": settings}


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


def brokers_to_fill_in(cluster: str) -> str:
    """Return what command lines have in place of the brokers of a cluster; no client accepts it."""
    return f"BROKERS-OF-{cluster}:PORT"


def with_brokers(settings: Settings, servers: str) -> Settings:
    return replace(settings, source=replace(settings.source, bootstrap_servers=servers))


def _of(settings: Settings, cluster: ClusterSettings) -> Settings:
    own = with_brokers(settings, brokers_to_fill_in(cluster.name))
    return replace(own, tables=replace(own.tables, root=cluster.table_root))
