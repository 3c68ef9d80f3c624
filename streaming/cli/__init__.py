"""The command `offsetlake`: parses arguments, calls the packages below, prints the results.

`main` has all commands, which are in `commands`; `options` has their common options.
"""

import os

# Users get errors in a sentence, without the logs of delta-rs and its storage libraries. These read the
# variable once, when they are loaded.
os.environ.setdefault("RUST_LOG", "off")
