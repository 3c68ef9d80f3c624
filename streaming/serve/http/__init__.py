"""The HTTP listener: what it answers (`app`), and how it listens (`listener`).

Starlette and uvicorn, on a thread with a loop of its own, so that nobody at another listener waits for it.
"""
