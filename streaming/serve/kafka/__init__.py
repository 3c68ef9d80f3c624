"""Kafka's protocol, read-only: `apis` is the table of supported APIs, `listener` the entry.

Responses are computed from a `view` of the snapshot alone; `connection` reads and writes bytes.
"""
