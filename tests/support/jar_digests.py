"""Writes `conf/jars.sha256` after a change of `conf/ivy.xml`: what the registry gives is what was meant.

python -m jar_digests  # with tests/support on the path, as `make lock` has it
"""

import tempfile
from pathlib import Path
from typing import get_args

from streaming.jvm.jars import JarSet, default_cache, digest_file, listed_jars, run_ivy, sha256_of


def main() -> None:
    cache = default_cache()
    digests: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for conf in get_args(JarSet):
            jars = Path(scratch, conf)
            run_ivy(conf, jars, cache, Path(scratch, "ivy.log"))
            for name in listed_jars(conf):
                digest = sha256_of(jars / name)
                if digests.setdefault(name, digest) != digest:
                    raise SystemExit(f"error: {name} is two jars, of different content: {conf} has another.")
    lines = (f"{digest}  {name}\n" for name, digest in sorted(digests.items()))
    digest_file().write_text("".join(lines), encoding="ascii")


if __name__ == "__main__":
    main()
