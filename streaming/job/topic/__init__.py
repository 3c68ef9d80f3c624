"""What the topic itself is like now, and whether reading on from where the tables are is enough.

`reasons` is the pure part, `watch` asks the brokers, `question` repeats that until it is answered.
"""
