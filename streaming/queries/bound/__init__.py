"""Queries bound to one snapshot, so that all parts of an answer are consistent. They cannot open tables.

`SnapshotQueries` are Kafka's requests, `SnapshotLagQueries` cover lag and health.
"""
