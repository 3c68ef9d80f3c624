"""Why bytes could not be decoded: the kind of fault, and a reason that a person can act on."""

from enum import StrEnum


class ErrorKind(StrEnum):
    """What is wrong with a record, a request or a response that cannot be decoded."""

    MALFORMED = "malformed"  # its bytes break the format
    UNKNOWN_TYPE = "unknown_type"  # a record type, or an API, that we do not decode
    UNSUPPORTED_VERSION = "unsupported_version"  # a version of a value or an API that we do not decode
    TOO_LARGE = "too_large"  # a request with more elements than anyone needs


class DecodeError(ValueError):
    """A record, a request or a response that cannot be decoded.

    `kind` says what is wrong, `reason` is a sentence: where, what was expected and what was found. `field` is
    Kafka's name of the field (`members[0].clientId`) and `at_byte` the byte of the key, value or frame at
    which it broke.
    """

    def __init__(self, kind: ErrorKind, reason: str, *, field: str, at_byte: int) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.field = field
        self.at_byte = at_byte
