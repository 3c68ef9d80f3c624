"""Signing in to the Kafka listener by SASL: `sign_in` is what a connection uses, and each mechanism has a
module.

Nothing here reads or writes sockets: tokens of clients come in, tokens for them go out.
"""
