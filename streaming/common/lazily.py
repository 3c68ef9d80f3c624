"""Names that a package exports, each imported at its first use."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazily(modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a `__getattr__` for a package (PEP 562); `modules` maps each name to its module.

    So a package can export names that need Spark without importing Spark for the others.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"expected one of {', '.join(sorted(modules))}, found {name!r}")
        return getattr(import_module(modules[name]), name)

    return get
