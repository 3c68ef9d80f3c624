"""The names of tests/data/hostile-names.json: as bad as a broker lets them be.

The file says of each what it is about; long ones are a text so many times, then another.
"""

import json
from pathlib import Path
from typing import Any, Final

_DATA: Final = Path(__file__).parents[1] / "data" / "hostile-names.json"


def _name(entry: dict[str, Any]) -> str:
    return f"{str(entry['text']) * entry.get('times', 1)}{entry.get('then', '')}"


NAMES: Final[list[str]] = [_name(entry) for entry in json.loads(_DATA.read_text(encoding="utf-8"))]
