"""Writes the tables of docs/metrics.md: `make board`.

They are generated from the catalogue, between comments that name them.
"""

import re
from pathlib import Path

from streaming.serve.metrics.catalogue.document import tables_of_metrics, tables_of_names

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
PARTS = {"metrics": tables_of_metrics, "names": tables_of_names}


def with_tables(text: str) -> str:
    """The page with its tables as the code has them."""
    for name, made in PARTS.items():
        start, end = f"<!-- {name}: generated from the code -->\n", f"<!-- end of {name} -->"
        before, _, after = text.partition(start)
        assert re.search(re.escape(end), after), name
        text = f"{before}{start}\n{made()}\n{end}{after.partition(end)[2]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
