"""What Prometheus is told: which metrics there are, which of them are wanted, and their bytes.

`catalogue` declares them, `exposition` makes the bytes of what `streaming.serve.assessment` knows.
"""
