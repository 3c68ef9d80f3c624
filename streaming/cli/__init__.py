"""The command `offsetlake`: reads arguments, calls the room that knows, prints what it says.

`main` has all commands; `options` what they have in common.
"""
