"""Java on this machine, and the jars that Spark and the demo's broker need.

`jars` fills the jar cache. `class_archive` locates the archive of classes with which the job's JVM starts
sooner.
"""

from streaming.jvm.jars import ensure_jars
from streaming.jvm.java import find_java

__all__ = ["ensure_jars", "find_java"]
