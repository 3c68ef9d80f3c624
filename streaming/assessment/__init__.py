"""The assessment: all facts about committed offsets at one moment, one row each.

Start at `assess`; `over_time` does the same for each moment of a past time. Lag, health, expiry and recreated
topics are computed only here: commands and SQL print the rows, alert rules filter them, metrics sum them.
"""
