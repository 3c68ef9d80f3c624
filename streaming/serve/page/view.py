"""The content of a page, before it is HTML, JSON or CSV."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streaming.queries.as_of import AsOf


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page: its title, template and context, and how complete its content is (None: it says so itself).

    `lag_at` is the moment (ms) as of which lag, status and expiry are (None: the page has none).
    `remarks` say what its content lacks, besides `about`. `is_live`: it is cheap enough to be asked for every
    few seconds.
    """

    title: str
    template: str
    about: AsOf | None
    context: Mapping[str, Any] = field(default_factory=dict)
    lag_at: int | None = None
    is_live: bool = True
    remarks: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Document:
    """The rows of `.json` and `.csv`, those of a command, and how complete they are. `lost` are the removed
    offsets that can be put back (schema `lag.restoring.RESTORED`; None: the page has none)."""

    rows: pa.Table
    about: AsOf
    lost: pa.Table | None = None
    errors: Mapping[str | None, str] = field(default_factory=dict)
    remarks: Sequence[str] = ()
