"""The topics that kaskade shows, as JSON: its own application on Textual's terminal without a screen."""

import asyncio
import json
import sys

from kaskade.admin import KaskadeAdmin
from textual.widgets import DataTable

_LIMIT_S = 60


async def main() -> None:
    app = KaskadeAdmin({"bootstrap.servers": sys.argv[1]}, refresh_interval=0)
    async with app.run_test(size=(200, 50)) as pilot:
        async with asyncio.timeout(_LIMIT_S):
            while not is_complete(rows := shown(app)):
                await pilot.pause(0.2)
    json.dump(rows, sys.stdout)


def shown(app: KaskadeAdmin) -> dict[str, list[str]]:
    """Return the cells of each topic after its name."""
    table = app.query_one(DataTable)
    rows = [[str(cell) for cell in table.get_row_at(at)] for at in range(table.row_count)]
    return {topic: cells for topic, *cells in rows}


def is_complete(rows: dict[str, list[str]]) -> bool:
    """Whether the columns that are loaded later have numbers: groups, members, about so many records, lag."""
    return bool(rows) and all(cell.lstrip("≈").isdecimal() for cells in rows.values() for cell in cells[3:])


asyncio.run(main())
