"""A real broker and real consumer groups on this machine, for `offsetlake demo`.

`local_broker` starts a broker from jars; `traffic` lets groups come, commit, rewind and go; `scene` tells
what happened to them, `layout` and `display` show it. `demo` is the whole.
"""
