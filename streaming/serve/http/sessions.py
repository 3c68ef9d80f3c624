"""Sessions of browsers: the values of their cookies."""

import hmac
import secrets
from typing import Final

_KEY_BYTES: Final = 32


class Sessions:
    """Makes and checks session values: their end (monotonic, ms), and a seal that only this process can make.

    Nothing is stored, so a value cannot be revoked before its end; all values end with the process.
    """

    def __init__(self, lasting_s: float) -> None:
        self.lasting_s = lasting_s
        self._key = secrets.token_bytes(_KEY_BYTES)

    def new(self, now: float) -> str:
        """Return the value of a session that begins now."""
        end = str(int((now + self.lasting_s) * 1_000))
        return f"{end}.{self._seal(end.encode())}"

    def is_valid(self, value: bytes, now: float) -> bool:
        """Return whether this process made the value, and it has not ended."""
        end, _, seal = value.partition(b".")
        return hmac.compare_digest(seal, self._seal(end).encode()) and now * 1_000 < int(end)

    def _seal(self, end: bytes) -> str:
        return hmac.digest(self._key, end, "sha256").hex()
