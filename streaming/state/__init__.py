"""The replica of one offsets partition: what its group coordinator would hold (pure Arrow).

`replay` takes records and gives the next state and what changed; `stored` is its form in Spark's state.
"""
