"""Questions that are bound to one snapshot: all that one answer is made of is asked of the same.

`SnapshotQueries` are Kafka's, `SnapshotLagQueries` about lag and health. They cannot open tables.
"""
