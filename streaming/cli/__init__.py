"""The command `offsetlake`: reads arguments, calls the package that knows, prints what it says.

`main` has all commands, which are in `commands`; `options` what they have in common.
"""

import os

# What delta-rs and the storage libraries in it log is not for users, who get their errors in a sentence. They
# read this once, when they are loaded.
os.environ.setdefault("RUST_LOG", "off")
