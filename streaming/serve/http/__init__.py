"""The HTTP listener: its responses (`app`), who gets them (`guard`, `login`), and its sockets (`listener`).

Starlette and uvicorn run on a thread with its own event loop, so that they never delay the Kafka listeners.
"""
