"""Names that a package offers, each imported when it is first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package (PEP 562): by name, the module that has it.

    So a package can offer what needs Spark to those who want it, and cost the others nothing.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"expected one of {', '.join(sorted(modules))}, found {name!r}")
        return getattr(import_module(modules[name]), name)

    return get
