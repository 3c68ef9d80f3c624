"""Small tools that know nothing of offsets: times, arrays, keys, pieces, printable text.

Code that several packages need exists once, here. No module has to be read first: each can be read alone.
"""
