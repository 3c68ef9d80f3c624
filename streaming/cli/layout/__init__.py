"""Tables for people: their columns, the texts in cells, and lines that fit a terminal.

`forms` has the columns of each command, `cells` the texts, `lines` the layout for a width.
"""
