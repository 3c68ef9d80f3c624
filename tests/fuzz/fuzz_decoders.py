"""Fuzzes the decoders with atheris: `python tests/fuzz/fuzz_decoders.py -max_total_time=60 [CORPUS]`.

The first byte of an input is the length of the key, the rest is key and value. No input may raise anything
but `DecodeError`, and all readers must agree on it. `--corpus DIRECTORY` writes the test vectors as a corpus
to start from. Atheris is not among the project's dependencies: install it into an environment of its own.
"""

import json
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa

try:
    import atheris
except ImportError:
    sys.exit("the fuzzer needs atheris, which is not a dependency of this project: pip install atheris")

with atheris.instrument_imports(include=["decoders"]):
    from decoders import DecodeError, decode_columns, decode_document
    from decoders.rows.documents import document_text

VECTORS = Path(__file__).parents[1] / "vectors"


def split(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Key and value of an input; no bytes for a value are a tombstone."""
    size = data[0] if data else 0
    key, value = data[1 : 1 + size], data[1 + size :]
    return key, value or None


def check(data: bytes) -> None:
    """Read an input with every reader."""
    key, value = split(data)
    columns = decode_columns(pa.array([b"\0\2\0\0", key, None]), pa.array([None, value, b""], pa.binary()))
    row = columns.to_pylist()[1]
    outcome = outcome_of(key, value)
    if isinstance(outcome, DecodeError):
        found = {name: row[name] for name in ("reason", "field", "at_byte")} | {"kind": row["error_kind"]}
        assert found == vars(outcome)
        return
    assert row["error_kind"] is None
    assert json.loads(document_text(key, value)) == outcome
    if row["document"] is not None:
        assert json.loads(row["document"]) == outcome
    elif outcome["value"] is not None:
        assert row["committed_offset"] == outcome["value"]["data"]["offset"]


def outcome_of(key: bytes | None, value: bytes | None) -> Any:
    """What the row reader makes of a record."""
    try:
        return decode_document(key, value)
    except DecodeError as error:
        return error


def write_corpus(directory: Path) -> None:
    """The test vectors as inputs."""
    directory.mkdir(parents=True, exist_ok=True)
    vectors = [json.loads((VECTORS / f"{name}.json").read_text()) for name in ("records", "errors")]
    for number, vector in enumerate(chain(*vectors)):
        key, value = bytes.fromhex(vector["key"] or ""), bytes.fromhex(vector["value"] or "")
        (directory / f"vector-{number}").write_bytes(bytes([len(key)]) + key + value)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--corpus"]:
        write_corpus(Path(sys.argv[2]))
    else:
        atheris.Setup(sys.argv, check)
        atheris.Fuzz()
