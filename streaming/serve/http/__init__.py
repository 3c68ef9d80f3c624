"""The HTTP door: what it answers (`app`), and how it listens (`door`).

Starlette and uvicorn, on a thread with a loop of its own, so that nobody at another door waits for it.
"""
