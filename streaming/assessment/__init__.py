"""The assessment: all that is known of committed offsets at one moment, one row each.

Start at `assess`; `over_time` does the same for each moment of a time span. Lag, health, expiry and recreated
topics are computed here alone: commands and SQL print the rows, alert rules filter them, metrics sum them.
"""
