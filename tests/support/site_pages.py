"""What mkdocs adds to docs/ for the site: README, changelog, settings, and a list of decisions."""

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[2]

PLACES: Final = {
    "README.md": "about.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "conf/offsetlake.toml": "settings.md",
}
"""The files outside docs/ that pages link to, and the pages that have their text."""

_LINK: Final = re.compile(r"(?P<open>\]\()(?P<target>[^)#:\s]+)(?P<rest>#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages."""
    for source, page in PLACES.items():
        text = (ROOT / source).read_text("utf-8")
        files.append(File.generated(config, page, content=_as_page(source, text)))
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    rows = [f"- {file.name[:4]} [{_title(file)}]({file.name})" for file in decisions]
    text = "\n".join(["# Decisions", "", *rows, ""])
    files.append(File.generated(config, "decisions/index.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let links to files outside docs/ lead to their pages, which have links as from the root."""
    name = page.file.src_uri
    base = Path(next((source for source, own in PLACES.items() if own == name), f"docs/{name}")).parent

    def rewritten(link: re.Match[str]) -> str:
        target = _normal(base / link["target"])
        where = PLACES.get(target) or target.removeprefix("docs/")
        if link["target"].endswith("/"):
            where += "/index.md"
        up = "../" * name.count("/")
        return f"{link['open']}{up}{where}{link['rest'] or ''})"

    return _LINK.sub(rewritten, markdown)


def _normal(path: Path) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts = parts[:-1]
        else:
            parts.append(part)
    return "/".join(parts)


def _as_page(source: str, text: str) -> str:
    return text if source.endswith(".md") else _settings_page(text)


def _settings_page(text: str) -> str:
    """Return the settings with a heading for each section; long comments are wrapped."""
    wrapped = "<style>.md-typeset pre > code { white-space: pre-wrap }</style>"
    head, *sections = re.split(r"^(?=\[\w)", text, flags=re.MULTILINE)
    about = re.sub(r"^# ?", "", head, flags=re.MULTILINE)
    named = ((one.partition("\n")[0].strip("[]"), one) for one in sections)
    blocks = [f"## {name}\n\n```toml\n{one.rstrip()}\n```\n" for name, one in named]
    return "\n".join(["# Settings", "", wrapped, "", about, *blocks])


def _title(file: Path) -> str:
    return file.read_text("utf-8").partition("\n")[0].removeprefix("# ")
