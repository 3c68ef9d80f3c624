"""What the listener answers to a principal, from a snapshot and without a connection."""

from dataclasses import dataclass
from typing import Any

from listening import CLUSTER_ID

from decoders.messages import Request, read_request, read_response, request_bytes
from streaming.common.times import now_ms
from streaming.serve.kafka import apis
from streaming.serve.kafka.principals import Principal
from streaming.serve.kafka.view import Address, Client, RequestContext
from streaming.serve.memory.snapshot import MemorySnapshot
from streaming.serve.memory.tailer import Tailer
from streaming.tables.tables import Tables

_WITHIN_MS = 10**9


@dataclass(frozen=True)
class Seen:
    """A client that asks without a connection; `context` is what its answers are made from."""

    context: RequestContext

    def ask(self, api_key: int, version: int, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        return read_response(api_key, version, self.sent(api_key, version, body)[4:]).body

    def sent(self, api_key: int, version: int, body: dict[str, Any]) -> bytes:
        """Return the answer to a request as it is sent."""
        return apis.answer(request_of(api_key, version, body), self.context).whole


def request_of(api_key: int, version: int, body: dict[str, Any]) -> Request:
    """Return a request as a connection reads it."""
    return read_request(request_bytes(api_key, version, 1, "tests", body)[4:])


def seen_by(principal: Principal | None, tables: Tables) -> Seen:
    """Return a client of tables as they are now."""
    tailer = Tailer(tables)
    tailer.poll()
    return of_snapshot(principal, tailer.current)


def of_snapshot(principal: Principal | None, snapshot: MemorySnapshot, *, now: int | None = None) -> Seen:
    """Return a client of a snapshot."""
    context = RequestContext(
        snapshot=snapshot,
        now=now_ms() if now is None else now,
        within_ms=_WITHIN_MS,
        address=Address("127.0.0.1", 1),
        cluster_id=CLUSTER_ID,
        client=Client(),
        principal=principal,
    )
    return Seen(context)


def principal(groups: list[str], topics: list[str], name: str = "p") -> Principal:
    """Return a principal with patterns of groups and topics."""
    return Principal(name=name, groups=groups, topics=topics)
