"""The settings: `conf/offsetlake.toml`, a user's file and the command line become one frozen object.

A setting is a field in `model`, the module to read first, and a line with its explanation in
`conf/offsetlake.toml`. `reading` combines the sources.
"""

from streaming.settings.model import Settings
from streaming.settings.reading import read_settings

__all__ = ["Settings", "read_settings"]
