"""The command that retrieves jars before a job or the demo needs them."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from streaming.cli.signals import exit_on_sigterm
from streaming.model.errors import MisuseError

if TYPE_CHECKING:
    from streaming.jvm.jars import JarSet

_SETS: "Final[tuple[JarSet, ...]]" = ("connector", "msk-iam", "s3a", "broker", "tools")
_DEFAULT: "Final[tuple[JarSet, ...]]" = ("connector", "broker", "tools")


@click.command()
@click.option(
    "--to",
    metavar="DIR",
    type=click.Path(),
    help="Copy the jars into this folder. Commands use the folder if OFFSETLAKE_JARS is its path.  "
    "[default: the jar cache]",
)
@click.option(
    "--set",
    "sets",
    multiple=True,
    type=click.Choice(_SETS),
    help="A set of jars: connector (the job), msk-iam (the job with AWS IAM), s3a (with a "
    "checkpoint on S3), broker and tools (the demo); "
    f"can be repeated.  [default: {', '.join(_DEFAULT)}]",
)
def jars(to: str | None, sets: "tuple[JarSet, ...]") -> None:
    """Retrieve the jars that the job and the demo need to start without network access.

    After a run with --to, set OFFSETLAKE_JARS to the path of the folder. On another machine, set it to the
    path of the copied folder.

    Each jar must have the SHA-256 that this release lists. Existing jars are checked, not downloaded again.

    \b
      offsetlake jars
      offsetlake jars --to /srv/jars --set connector
    """
    from streaming.jvm.jars import copy_jars, ensure_jars, listed_jars

    if to == "":
        raise MisuseError("--to: expected a folder, found ''. For the current folder, write a dot.")
    with exit_on_sigterm():
        for conf in sets or _DEFAULT:
            directory = ensure_jars(conf) if to is None else copy_jars(conf, Path(to))
            print(f"{conf}: {len(listed_jars(conf))} jars in {directory}", flush=True)
