"""Why bytes could not be decoded: the kind of error, and a reason for people."""

from enum import StrEnum


class ErrorKind(StrEnum):
    """The kind of error of a record, a request or a response that cannot be decoded."""

    MALFORMED = "malformed"  # the bytes break the format
    UNKNOWN_TYPE = "unknown_type"  # a record type or an API that this package does not decode
    UNSUPPORTED_VERSION = "unsupported_version"  # a version of a value or an API that it does not decode
    TOO_LARGE = "too_large"  # a request with more elements than any client needs


class DecodeError(ValueError):
    """A record, a request or a response that cannot be decoded.

    `reason` is a sentence: the place, what was expected, what was found. `field` is Kafka's name of the field
    (`members[0].clientId`), `at_byte` the position of the error in the key, value or frame.
    """

    def __init__(self, kind: ErrorKind, reason: str, *, field: str, at_byte: int) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.field = field
        self.at_byte = at_byte
