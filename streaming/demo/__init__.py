"""A real broker and real consumer groups on this machine, for `offsetlake demo`.

`local_broker` runs a broker from jars; `traffic` runs producers and consumer groups; `scene` records their
changes, `layout` and `display` show them. `demo` combines all.
"""
