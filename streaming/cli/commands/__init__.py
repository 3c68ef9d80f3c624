"""The commands: their arguments, queries and output.

`main` (one folder up) groups them; common options are in `options`.
"""
