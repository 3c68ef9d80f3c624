"""Counts of a listener for its metrics: requests, errors in responses, closed connections.

Only the event loop counts. Other threads may read.
"""

from collections import Counter
from typing import Final

from decoders.messages import APIS
from decoders.messages.cluster import API_VERSIONS
from streaming.serve.kafka.apis import ADVERTISED, Response
from streaming.serve.kafka.errors import Error
from streaming.serve.kafka.limits import Closed
from streaming.serve.kafka.view import Client
from streaming.serve.memory.names import NONE

MOST_CLIENTS: Final = 30
"""The most names and versions of client software that are counted apart: clients choose them."""

_UNKNOWN: Final = "unknown"  # as in the metric `connections` of brokers
_OTHER: Final = "other"
_Software = tuple[str, str]


class Counts:
    """The counts since the listener was opened."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[int, int]] = Counter()
        self._software: Counter[_Software] = Counter({(_UNKNOWN, _UNKNOWN): 0})
        self._errors: Counter[tuple[int, int]] = Counter()
        self._closed: Counter[Closed] = Counter()

    def add_request(self, api_key: int, version: int, client: Client) -> None:
        """Count a readable request; only ApiVersions may have a version that is not supported."""
        self._requests[api_key, version if version in ADVERTISED[api_key] else NONE] += 1
        self._software[self._counted_as(client)] += 1

    def _counted_as(self, client: Client) -> _Software:
        software = (client.software or _UNKNOWN, client.version or _UNKNOWN)
        is_counted = software in self._software or len(self._software) < MOST_CLIENTS
        return software if is_counted else (_OTHER, _OTHER)

    def add_errors(self, response: Response) -> None:
        for code, count in response.errors.items():
            self._errors[response.api_key, code] += count

    def add_closed(self, reason: Closed) -> None:
        self._closed[reason] += 1

    def requests(self) -> dict[tuple[str, str], int]:
        """Return the number of readable requests by Kafka's name of the API and the version; of all
        supported versions, and `other` for the rest of ApiVersions."""
        counts = {
            (APIS[key].name, str(version)): self._requests[key, version]
            for key, versions in ADVERTISED.items()
            for version in versions
        }
        return counts | {(API_VERSIONS.name, _OTHER): self._requests[API_VERSIONS.key, NONE]}

    def software(self) -> dict[_Software, int]:
        """Return the number of readable requests by the name and version of the client's software."""
        return dict(self._software)

    def errors(self) -> dict[tuple[str, str], int]:
        """Return the number of errors in responses by Kafka's names of the API and the error, without those
        that did not occur."""
        return {
            (APIS[key].name, Error(code).name): count for (key, code), count in dict(self._errors).items()
        }

    def closed(self) -> dict[str, int]:
        """Return the number of connections that we have closed, by reason."""
        return {reason.value: self._closed[reason] for reason in Closed}
