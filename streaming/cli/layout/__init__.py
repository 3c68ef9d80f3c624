"""Tables for people: which columns they get, what stands in a cell, and lines that a terminal does not break.

`forms` has the columns of each command, `cells` the texts, `lines` lays both out for a width.
"""
