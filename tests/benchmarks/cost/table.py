"""Tables that are printed as they grow, so that a run that is interrupted still tells."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Values = Mapping[str, float]


@dataclass
class Table:
    """Rows by contestant and by what was done (such as a window of time), in runs; `columns` have formats."""

    title: str
    columns: Mapping[str, str]
    _found: dict[tuple[str, str], list[Values]] = field(default_factory=lambda: defaultdict(list))

    def begin(self) -> None:
        """Print the head."""
        print(f"\n{self.title}")
        print(
            self._line("contestant", "what", "run", [f"{name:>{self._width(name)}}" for name in self.columns])
        )

    def row(self, contestant: str, what: str, run: int, values: Values) -> None:
        """Print what was measured in one run."""
        self._found[contestant, what].append(values)
        self._print(contestant, what, str(run), values, self.columns)

    def end(self, own: str, others: Sequence[str]) -> None:
        """Print the medians, where there are several runs, and the ratios of one contestant's to others'."""
        medians = {key: self._median(rows) for key, rows in self._found.items()}
        for (contestant, what), values in medians.items():
            if len(self._found[contestant, what]) > 1:
                self._print(contestant, what, "med", values, self.columns)
        for other in others:
            for what in dict.fromkeys(what for contestant, what in medians if contestant == own):
                if (other, what) in medians:
                    self._ratios(f"{own} / {other}", what, medians[own, what], medians[other, what])

    def _median(self, rows: Sequence[Values]) -> Values:
        names = [name for name in self.columns if any(name in row for row in rows)]
        return {name: statistics.median(row[name] for row in rows if name in row) for name in names}

    def _ratios(self, name: str, what: str, own: Values, other: Values) -> None:
        ratios = {column: own[column] / other[column] for column in own if other.get(column)}
        self._print(name, what, "", ratios, dict.fromkeys(self.columns, ".2f"))

    def _print(self, name: str, what: str, run: str, values: Values, formats: Mapping[str, str]) -> None:
        cells = [
            f"{format(values[column], formats[column]) if column in values else '-':>{self._width(column)}}"
            for column in self.columns
        ]
        print(self._line(name, what, run, cells), flush=True)

    def _line(self, name: str, what: str, run: str, cells: Sequence[str]) -> str:
        return f"{name:24}{what:12}{run:>4}" + "".join(cells)

    def _width(self, name: str) -> int:
        return max(len(name), 5) + 2
