"""The current state of the topic, and whether the tables can be updated by reading on.

`reasons` is the pure part, `watch` asks the brokers, `question` repeats that until they answer.
"""
