"""Requests and responses of Kafka's protocol: `read_request` and `response_bytes` are what a server needs.

`apis` is the table of all APIs; each is declared once, for all versions, in the module of its kind.
"""

from decoders.messages.api import Api
from decoders.messages.apis import APIS
from decoders.messages.bulk import Columns
from decoders.messages.frames import (
    Pieces,
    Request,
    Response,
    prepare,
    read_request,
    read_response,
    request_bytes,
    response_bytes,
    response_pieces,
)
from decoders.messages.writer import UnwritableError

__all__ = [
    "APIS",
    "Api",
    "Columns",
    "Pieces",
    "Request",
    "Response",
    "UnwritableError",
    "prepare",
    "read_request",
    "read_response",
    "request_bytes",
    "response_bytes",
    "response_pieces",
]
