"""The replica of one offsets partition: the state that its group coordinator would have (pure Arrow).

`replay` applies records and returns the next state and the changes; `stored` is the form in Spark's state.
"""
