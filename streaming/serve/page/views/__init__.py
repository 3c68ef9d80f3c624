"""The pages, one module each.

`page` returns the content of a template, `document` the rows of its files. The columns of a page's tables are
declared here, not in the templates.
"""
