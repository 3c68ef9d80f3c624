"""The current state of the topic, and whether the tables can be updated by reading on.

`reasons` is the pure part, `watch` asks the brokers and compares clocks (`clock_pace`), `question` repeats
that until brokers answer.
"""
