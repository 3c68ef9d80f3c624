"""Fields that many messages have in common."""

from typing import Final

from construct import Default

from decoders.formats.wire import BOOL, INT16, INT32, NULLABLE_STRING

THROTTLE_TIME_MS: Final = Default(INT32, 0)
ERROR_CODE: Final = Default(INT16, 0)
ERROR_CODE_NAME: Final = "errorCode"
ERROR_MESSAGE: Final = Default(NULLABLE_STRING, None)

INCLUDE_AUTHORIZED_OPERATIONS: Final = Default(BOOL, False)
AUTHORIZED_OPERATIONS: Final = Default(INT32, -(2**31))  # a set of bits; the lowest number: not requested
