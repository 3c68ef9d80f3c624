"""Reads pages for tests: their elements, links, tables and visible text, and what must not be in any page."""

from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from typing import Self

_VOID = frozenset({"meta", "link", "img", "input", "br"})
_SCHEMES = ("/", "#")


@dataclass
class Element:
    """An element, with its own text and that of the elements within."""

    tag: str
    attributes: dict[str, str | None]
    parents: tuple[str, ...]
    texts: list[str] = field(default_factory=list)
    inside: list["Element"] = field(default_factory=list)

    @cached_property
    def text(self) -> str:
        return "".join(self.texts)


class HtmlPage(HTMLParser):
    """The elements of a page in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(text)
        self.close()

    @classmethod
    def of(cls, body: bytes) -> Self:
        return cls(body.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, dict(attrs), tuple(one.tag for one in self._open))
        assert len(element.attributes) == len(attrs), (tag, attrs)
        self.elements.append(element)
        for one in self._open:
            one.inside.append(element)
        if tag not in _VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self._open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag != "p" or (self._open and self._open[-1].tag == "p"):
            closed = self._open.pop()
            assert closed.tag == tag, (closed, tag)

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element.texts.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")

    # --- what a page says ------------------------------------------------------------------------------

    def all(self, tag: str, **attributes: str) -> list[Element]:
        return [
            one
            for one in self.elements
            if one.tag == tag
            and attributes.items() <= {k: v or "" for k, v in one.attributes.items()}.items()
        ]

    def one(self, tag: str, **attributes: str) -> Element:
        (found,) = self.all(tag, **attributes)
        return found

    def links(self) -> dict[str, str]:
        """The address of each link by its text; the last of several with one text."""
        return {one.text: one.attributes["href"] or "" for one in self.all("a")}

    def tables(self) -> dict[str, list[list[Element]]]:
        """The cells of each table with rows, by its caption."""
        found = {}
        for table in self.all("table"):
            caption = next(one.text for one in table.inside if one.tag == "caption")
            rows = [one for one in table.inside if one.tag == "tr"][1:]
            found[caption] = [[cell for cell in row.inside if cell.tag == "td"] for row in rows]
        return found

    def said(self) -> str:
        """The text of the main part, with single blanks."""
        return " ".join(self.one("main").text.split())


def check_harmless(body: bytes) -> None:
    """See that a page has the elements of ours only, and no text that cannot be seen."""
    page = HtmlPage.of(body)
    assert [one.attributes["src"] for one in page.all("script") if not one.text] == [
        one.attributes["src"] for one in page.all("script")
    ]
    for element in page.elements:
        assert not [name for name in element.attributes if name.startswith("on") or name == "style"], element
        for name in ("href", "src", "action", "data-part"):
            target = element.attributes.get(name, "/")
            assert target is not None, element
            assert target.startswith(_SCHEMES), element
            assert not target.startswith("//"), element
        assert element.tag != "img" or element.attributes["src"] == "/static/icon.svg"
        assert element.tag not in ("iframe", "object", "embed", "base", "style"), element
    unseen = {char for char in page.one("html").text if not char.isprintable()} - {"\n"}
    assert not unseen, unseen
