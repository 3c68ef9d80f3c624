"""The command that decodes records given as JSON lines."""

import json
import sys
from typing import Any, TextIO

import click

from streaming.cli.output import for_programs, warn
from streaming.common.escapes import json_text
from streaming.model.errors import MisuseError


@click.command()
@click.argument("file", type=click.File("r", encoding="utf-8", errors="replace"), default="-")
def decode(file: TextIO) -> int:
    """Decode records: JSON lines {"key": hex, "value": hex or null} from FILE or standard input.

    The command prints one line per record: the output of Kafka's own message formatter, or {"error": {...}}.
    If an input line is invalid, standard error shows its number, and the exit code is 1.

    \b
      echo '{"key": "000100016700017400000003", "value": null}' | offsetlake decode
    """
    code = 0
    for_programs(sys.stdout)
    for number, line in enumerate(file, start=1):
        if line.strip():
            try:
                print(json_text(decode_line(line, number), separators=(",", ":")), flush=True)
            except MisuseError as error:
                warn([str(error)])
                code = 1
    return code


def decode_line(line: str, number: int) -> dict[str, Any]:
    """Decode one line `{"key": hex or null, "value": hex or null}` (`number` counts from 1).

    Returns the document of Kafka's own formatter, or `{"error": {"reason", "field", "at_byte"}}` for bytes
    that cannot be decoded. Raises `MisuseError` for a line of another form.
    """
    from decoders import DecodeError, decode_document  # needed by no other command

    key, value = _read(line, number)
    try:
        return decode_document(key, value)
    except DecodeError as error:
        return {"error": {"reason": error.reason, "field": error.field, "at_byte": error.at_byte}}


def _read(line: str, number: int) -> tuple[bytes | None, bytes | None]:
    try:
        record = json.loads(line)
        return _bytes(record["key"]), _bytes(record["value"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise MisuseError(
            f'line {number}: expected {{"key": hex or null, "value": hex or null}}, '
            f"found {line.strip()[:80]!r} ({error})."
        ) from error


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
