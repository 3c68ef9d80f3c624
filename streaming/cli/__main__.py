"""`python -m streaming.cli` is `offsetlake`."""

from streaming.cli.main import main

main()
