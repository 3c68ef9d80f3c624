"""The pages, one module each.

`page` returns the content of a template, `document` the rows of its files.
"""
