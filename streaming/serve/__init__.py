"""Serves the tables over the wire to clients without access to them.

`memory` holds the tables as an in-memory snapshot; the listeners (Kafka's protocol, HTTP) respond from it
alone.
"""
