"""Java on this machine, and the jars that Spark and the demo's broker need.

`python -m streaming.jvm.jars` fills the jar cache.
"""

from streaming.jvm.jars import ensure_jars
from streaming.jvm.java import find_java

__all__ = ["ensure_jars", "find_java"]
