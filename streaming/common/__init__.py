"""Small tools that know nothing of offsets: times, arrays, keys, pieces, printable text.

Code that several packages need exists once, here.
"""
