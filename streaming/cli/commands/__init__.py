"""The commands: what each takes, asks of the packages below, and prints.

`main` (one folder up) puts them in groups; their options are in `options`.
"""
