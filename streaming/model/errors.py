"""The errors that `offsetlake` explains to its user, each with the exit code of the command.

A message states what was being done, what was expected, what was found, and what to do.
"""

from typing import Final

_IF_OLDER: Final = (
    "An offsetlake of before the first release wrote it; begin with a new table root and checkpoint."
)


class OffsetlakeError(Exception):
    """A failure outside the program (a broker, a registry, a disk): exit code 1."""

    exit_code = 1


class MisuseError(OffsetlakeError):
    """A request that the program cannot fulfil (an option, a setting): exit code 2."""

    exit_code = 2


class MissingLibraryError(OffsetlakeError):
    """A Python module of others is missing, as in an installation for queries and `serve` alone."""

    def __init__(self, what: str, module: str | None) -> None:
        super().__init__(
            f"{what}: expected the Python module {module}, found none: this installation has only what "
            "queries and `offsetlake serve` need. Install offsetlake with all its dependencies."
        )


class OtherFormatError(MisuseError):
    """Data in the format of another release."""

    def __init__(self, what: str, *, expected: int, found: int, if_older: str = _IF_OLDER) -> None:
        advice = (
            if_older if found < expected else "A newer offsetlake wrote it; use that release or a newer one."
        )
        super().__init__(f"{what}: expected format {expected}, found format {found}. {advice}")
