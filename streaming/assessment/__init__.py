"""The assessment: all that is known of committed offsets at one moment, one row each.

Start at `assess`; `over_time` does the same for every moment of a past time. Commands and SQL print its rows,
alert rules filter them, metrics add them up: lag, health, expiry and topics made anew are worked out here and
nowhere else.
"""
