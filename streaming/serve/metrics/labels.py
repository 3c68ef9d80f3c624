"""Label values for any name that Kafka accepts, in a form that Prometheus can read.

A name is shown as a readable part and a hash of the whole if Prometheus cannot read it (it stops at a NUL),
if it is long (more than 256 bytes), or if it looks like such a hashed name. Distinct names so remain
distinct.
"""

import hashlib
import re
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.common.arrays import Mask, from_numbers, from_texts, numbers_or, to_mask

MOST_BYTES: Final = 256
"""The longest name that is shown unchanged."""

TEXTS: Final = pa.large_string()

_HASH_DIGITS: Final = 16
_MARK: Final = "~"
_LOOKS_HASHED: Final = f"{_MARK}[0-9a-f]{{{_HASH_DIGITS}}}$"
_KEPT_BYTES: Final = MOST_BYTES - _HASH_DIGITS - len(_MARK)
_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def label_values(names: pa.Array) -> pa.Array:
    """Return n names (none null) escaped for label values (large_string).

    >>> label_values(pa.array(['say "hi"', "two\\nlines"])).to_pylist()
    ['say \\\\"hi\\\\"', 'two\\\\nlines']
    """
    names = names.cast(TEXTS)
    is_hashed = _needs_hash(names)
    if is_hashed.any():
        places = np.flatnonzero(is_hashed)
        shown = [_with_hash(name) for name in names.take(from_numbers(places)).to_pylist()]
        source = np.arange(len(names))
        source[places] = len(names) + np.arange(len(places))
        names = pa.concat_arrays([names, from_texts(shown).cast(TEXTS)]).take(from_numbers(source))
    return escaped(names)


def escaped(texts: pa.Array) -> pa.Array:
    """Escape backslashes, quotes and newlines."""
    for char, instead in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n")):
        if to_mask(pc.match_substring(texts, char)).any():
            texts = pc.replace_substring(texts, char, instead)
    return texts


def label_value(name: str) -> str:
    return str(label_values(from_texts([name]))[0].as_py())


def is_label_name(name: str) -> bool:
    """Return whether the settings may use a name for a label."""
    return _NAME.fullmatch(name) is not None and not name.startswith("__")


def _needs_hash(names: pa.Array) -> Mask:
    is_long = numbers_or(pc.binary_length(names), 0) > MOST_BYTES
    has_nul = to_mask(pc.match_substring(names, "\0"))
    needs: Mask = is_long | has_nul | to_mask(pc.match_substring_regex(names, _LOOKS_HASHED))
    return needs


def _with_hash(name: str) -> str:
    data = name.encode()
    digest = hashlib.sha256(data).hexdigest()[:_HASH_DIGITS]
    kept = data.replace(b"\0", "\N{SYMBOL FOR NULL}".encode())[:_KEPT_BYTES].decode(errors="ignore")
    return f"{kept}{_MARK}{digest}"
