"""Small tools that know nothing of offsets: times, arrays, keys, pieces, texts that are safe to print.

What several packages need is here once.
"""
