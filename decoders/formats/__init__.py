"""Kafka's formats, each declared once: the record types of the offsets topic, and the blobs inside them.

`wire` has the primitive types, `record_types` the table of all records. The readers in `rows` and `columns`
are derived from these.
"""
