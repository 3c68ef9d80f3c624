"""Kafka's formats, each declared once: the record types of the offsets topic, and the blobs inside them.

`wire` is the alphabet, `record_types` the table. The readers in `rows` and `columns` are derived from these.
"""
