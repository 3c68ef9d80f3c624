"""Asks with many clients of a library at once, as it is told by lines, and prints a line for each answer.

A line to it has the name of a client, and `open BOOTSTRAP [CA NAME PASSWORD]`, `offsets GROUP...`,
`members GROUP...`, `groups`, `ends TOPIC...` or `close`. Its lines have the name, the two times that the
configs of broker 1 have after the answer, and `NAME=COUNT:LEAST:LARGEST`; or the name, `error` and the
reason. `soak.go`, `soak.js` (in `clients`) and `SoakAdmins.java` do the same.
"""

import queue
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

NAMED = ("offsetlake.read.until", "offsetlake.log.ends.sampled.at")
Numbers = Mapping[str, Iterable[int] | None]
"""Numbers by name; None: access denied."""


class Asking(Protocol):
    """A client of some library."""

    def offsets(self, groups: Sequence[str]) -> Numbers:
        """Fetch the committed offsets of groups."""
        ...

    def members(self, groups: Sequence[str]) -> Mapping[str, Iterable[str]]:
        """Describe groups; return the ids of their members."""
        ...

    def groups(self) -> Iterable[str]:
        """List the groups."""
        ...

    def ends(self, topics: Sequence[str]) -> Numbers:
        """Ask for the log ends of the ten partitions of topics."""
        ...

    def configs(self) -> Mapping[str, str]:
        """Return the configs of broker 1."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


def ask(made: Callable[[Sequence[str]], Asking]) -> None:
    """Do as the lines of stdin say; `made` opens a client."""
    tasks: dict[str, queue.SimpleQueue[list[str]]] = {}
    for line in sys.stdin:
        number, *words = line.split()
        if words[0] == "open":
            tasks[number] = queue.SimpleQueue()
            threading.Thread(target=_work, args=(number, tasks[number], made), daemon=True).start()
        tasks[number].put(words)
        if words[0] == "close":
            del tasks[number]


def _work(
    number: str, tasks: "queue.SimpleQueue[list[str]]", made: Callable[[Sequence[str]], Asking]
) -> None:
    words = tasks.get()
    client: Asking | None = None
    while True:
        try:
            if words[0] == "close":
                if client is not None:
                    client.close()
                return
            client = made(words[1:]) if client is None else client
            shown = _shown(client, words)
            configs = client.configs()
            line = " ".join([*(configs[name] or "-" for name in NAMED), *shown])
        except Exception as error:  # of any library: it is told
            line = f"error {type(error).__name__}: {error}".replace("\n", " ")
        sys.stdout.write(f"{number} {line}\n")
        sys.stdout.flush()
        words = tasks.get()


def _shown(client: Asking, words: Sequence[str]) -> list[str]:
    if words[0] == "open":
        return []
    if words[0] == "groups":
        names = list(client.groups())
        new = [int(name[4:]) for name in names if name.startswith("new-")]
        return [f"groups={len(names) - len(new)}:0:0", _summary("new", new)]
    if words[0] == "members":
        found = client.members(words[1:])
        return [_summary(name, [int(one[2:]) for one in ids]) for name, ids in found.items()]
    numbers = client.offsets(words[1:]) if words[0] == "offsets" else client.ends(words[1:])
    return [_summary(name, some) for name, some in numbers.items()]


def _summary(name: str, numbers: Iterable[int] | None) -> str:
    if numbers is None:
        return f"{name}=denied"
    some = list(numbers)
    return f"{name}={len(some)}:{min(some, default=0)}:{max(some, default=0)}"
