"""An API: one row of the table of all known requests and responses."""

from dataclasses import dataclass
from typing import Final

from construct import Struct

from decoders.formats.wire import INT16, INT32, NULLABLE_STRING, FlexibleStruct
from decoders.messages.versions import layout_of

_REQUEST_HEADER: Final = (
    "requestApiKey" / INT16,
    "requestApiVersion" / INT16,
    "correlationId" / INT32,
    "clientId" / NULLABLE_STRING,  # not compact even in flexible versions, so that every broker can read it
)

# Version 0 had no client id; only ControlledShutdown 0 used it.
REQUEST_HEADERS: Final = {1: Struct(*_REQUEST_HEADER), 2: FlexibleStruct(*_REQUEST_HEADER)}

RESPONSE_HEADERS: Final = {
    0: Struct("correlationId" / INT32),
    1: FlexibleStruct("correlationId" / INT32),
}


@dataclass(frozen=True)
class Api:
    """An API of Kafka's protocol: its key and name, the known versions, its request and response.

    Versions from `first_flexible` on are flexible (None: no version is).
    """

    key: int
    name: str
    versions: range
    first_flexible: int | None
    request: Struct
    response: Struct
    plain_response_header: bool = False

    def is_flexible(self, version: int) -> bool:
        """Whether a version, known or not, is flexible."""
        return self.first_flexible is not None and version >= self.first_flexible

    def request_header(self, version: int) -> int:
        """The version of the header of such requests: 2 if they are flexible, else 1."""
        return 2 if self.is_flexible(version) else 1

    def response_header(self, version: int) -> int:
        """The version of the header of such responses: 1 if they are flexible, else 0.

        ApiVersions always has header 0: its client does not yet know which versions the server can write.
        """
        return 1 if self.is_flexible(version) and not self.plain_response_header else 0

    def request_layout(self, version: int) -> Struct:
        """The layout of a request of a known version, after its header."""
        return layout_of(self.request, version, self.is_flexible(version))

    def response_layout(self, version: int) -> Struct:
        """The layout of a response of a known version, after its header."""
        return layout_of(self.response, version, self.is_flexible(version))
