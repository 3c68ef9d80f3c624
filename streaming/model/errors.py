"""The errors that `offsetlake` explains to its user, each with the exit code of the command.

A message says what was being done, what was expected, what was found and what to do about it.
"""


class OffsetlakeError(Exception):
    """Something outside the program failed (a broker, a registry, a disk): exit code 1."""

    exit_code = 1


class MisuseError(OffsetlakeError):
    """The program was asked for something it cannot do (an option, a setting): exit code 2."""

    exit_code = 2
