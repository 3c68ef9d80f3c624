"""The commands: what each takes, asks of the rooms below, and prints.

`main` (one folder up) puts them in groups; their options are in `options`.
"""
