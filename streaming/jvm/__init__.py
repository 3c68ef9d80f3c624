"""Java on this machine, and the jars that Spark and the demo's broker need.

`python -m streaming.jvm.jars` fills the jar cache. `class_archive` locates the archive of classes with which
the job's JVM starts sooner.
"""

from typing import TYPE_CHECKING

from streaming.common.lazily import lazily

if TYPE_CHECKING:
    from streaming.jvm.jars import ensure_jars
    from streaming.jvm.java import find_java

__all__ = ["ensure_jars", "find_java"]

# Lazily, because a module that runs with -m must not be loaded together with its package.
__getattr__ = lazily({"ensure_jars": "streaming.jvm.jars", "find_java": "streaming.jvm.java"})
