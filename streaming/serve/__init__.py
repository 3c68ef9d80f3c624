"""Answers over the wire, for whoever has no access to the tables: packages of their own.

`snapshot` is what the tables hold, in memory; the listeners (Kafka's protocol, metrics, the page) read it
alone.
"""
