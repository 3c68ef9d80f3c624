"""The installed command: runs `offsetlake` if the packages `streaming` and `decoders` are its own.

A wheel contains this file as the module `offsetlake`, beside both packages: other projects also install
packages of these names, and pip replaces files without a word.
"""

import sys
from importlib.util import find_spec
from pathlib import Path

_BEGINNING = b'"""offsetlake'  # of the `__init__.py` of both packages


def run() -> None:
    """Run the command and end the process; exit code 1 if a package is missing or another project's."""
    for package in ("streaming", "decoders"):
        if (found := other_than_ours(package)) is not None:
            sys.exit(
                f"error: expected offsetlake's own Python package {package!r}, found {found}: install "
                "offsetlake in an environment of its own (pipx or uv tool), without PYTHONPATH."
            )
    from streaming.cli.__main__ import run as run_command

    run_command()


def other_than_ours(package: str) -> str | None:
    """Describe the package that an import would load, without loading it; None: it is ours."""
    spec = find_spec(package)
    if spec is None:
        return "none"
    if spec.origin is None:
        return f"folders without __init__.py ({', '.join(spec.submodule_search_locations or ())})"
    with Path(spec.origin).open("rb") as file:
        is_ours = file.read(len(_BEGINNING)) == _BEGINNING
    return None if is_ours else spec.origin


if __name__ == "__main__":
    run()
