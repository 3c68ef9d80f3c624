"""Kafka's protocol, read-only: `apis` is the table of what is answered, `listener` opens the listener.

Answers are made from a `view` of the snapshot and from nothing else; `connection` is where bytes come and go.
"""
