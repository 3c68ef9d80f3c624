"""Requests of signing in by SASL (KIP-43, KIP-152).

Source: Kafka 4.4. After SaslHandshake 0 the client's tokens follow without headers, each after its size.
"""

from typing import Final

from construct import Struct

from decoders.formats.wire import BYTES, INT64, STRING, array
from decoders.messages.api import Api
from decoders.messages.fields import ERROR_CODE, ERROR_MESSAGE
from decoders.messages.versions import versions

SASL_HANDSHAKE: Final = Api(
    key=17,
    name="SaslHandshake",
    versions=range(0, 2),
    first_flexible=None,
    request=Struct("mechanism" / STRING),
    response=Struct("errorCode" / ERROR_CODE, "mechanisms" / array(STRING)),
)

# KIP-368 (v1): how long the session lasts; 0: without end.
SASL_AUTHENTICATE: Final = Api(
    key=36,
    name="SaslAuthenticate",
    versions=range(0, 3),
    first_flexible=2,
    request=Struct("authBytes" / BYTES),
    response=Struct(
        "errorCode" / ERROR_CODE,
        "errorMessage" / ERROR_MESSAGE,
        "authBytes" / BYTES,
        "sessionLifetimeMs" / versions("1+", INT64, default=0),
    ),
)
