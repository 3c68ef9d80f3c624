"""Answers over the wire, for whoever has no access to the tables: rooms of their own.

`picture` is what the tables hold, in memory; the doors (Kafka's protocol, metrics, the page) read it alone.
"""
