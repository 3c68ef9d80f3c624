"""Kafka's formats, each declared once: the record types of the offsets topic, and the blobs within them.

`wire` is the alphabet they are written in. The readers in `rows` and `columns` are derived from these.
"""
