"""The HTTP listener: its responses (`app`) and its sockets (`listener`).

Starlette and uvicorn run on a thread with its own event loop, so that they never delay the Kafka listeners.
"""
