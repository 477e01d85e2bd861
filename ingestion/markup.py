"""HTML and Markdown through unstructured: HTML gives its rendered text, Markdown keeps its characters."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ingestion import elements
from ingestion.canonical import Element, ParsedPage, clean
from ingestion.charsets import decode
from ingestion.elements import PageBuilder
from ingestion.errors import ParseError
from ingestion.placement import Squeezed

_HEADINGS: Final = ("h1", "h2", "h3", "h4", "h5", "h6")
_MAIN_TAG = re.compile(r"<(/?)main\b", re.IGNORECASE)
_DEL_TAG = re.compile(r"<(/?)del\b", re.IGNORECASE)
_INVISIBLE: Final = ("script", "style", "noscript", "template", "head")
_BREAKING: Final = frozenset(
    {
        "address", "article", "aside", "blockquote", "br", "caption", "dd", "details", "dialog", "div", "dl", "dt",
        "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li",
        "main", "nav", "ol", "option", "p", "pre", "section", "summary", "table", "tbody", "td", "tfoot", "th", "thead",
        "tr", "ul",
    }
)  # fmt: skip


def prepare(models_dir: Path) -> None:
    """Load the libraries before the fork."""
    elements.prepare(models_dir, "unstructured.partition.html.parser", "unstructured.partition.md")


def probe(path: Path, kind: str, password: str | None) -> dict[str, Any]:
    """One page; title of HTML, the charset as a fact."""
    del password
    text, charset = decode(path.read_bytes(), html=kind == "html")
    title = _html_title(text) if kind == "html" else None
    return {"page_count": 1, "title": title, "facts": {"charset": charset}}


def parse(path: Path, kind: str, first: int, last: int, password: str | None) -> list[ParsedPage]:
    """The one page. Raises ParseError no_text when nothing is left of the file."""
    del password
    text, _ = decode(path.read_bytes(), html=kind == "html")
    pages = html_pages(text) if kind == "html" else [_markdown_page(text)]
    elements.require_text(pages)
    return pages[first - 1 : last]


def _html_root(text: str) -> Any:
    from lxml import html as lxml_html

    # Without huge_tree everything below a depth of 256 is dropped in silence; with it, below 2,048.
    parser = lxml_html.HTMLParser(encoding="utf-8", no_network=True, huge_tree=True, remove_comments=True)
    try:
        # Bytes: a string with an encoding declaration of its own is refused.
        root: Any = lxml_html.document_fromstring(text.encode("utf-8", "replace"), parser=parser)
    except (ValueError, SyntaxError, AssertionError):
        raise ParseError("no_text", "The page holds no text.") from None
    if any("RESOURCE_LIMIT" in entry.type_name for entry in parser.error_log):
        raise ParseError("resource_limit", "The page nests too deeply: a part of it would be lost.", resource="depth")
    for node in list(root.iter(*_INVISIBLE)):
        if node.tag != "head":
            node.drop_tree()
    return root


def _html_title(text: str) -> str | None:
    try:
        node = _html_root(text).find(".//title")
    except ParseError:
        return None
    return (clean(node.text or "").strip() or None) if node is not None else None


def html_pages(text: str) -> list[ParsedPage]:
    """One page with the rendered text, by unstructured; by our own walk where that loses words."""
    text = clean(text)
    root = _html_root(text)
    body = root.find(".//body")
    blocks = list(_walk(root if body is None else body))
    reference = sum(elements.tokens(words) for _, words, _ in blocks)

    def by_unstructured() -> list[ParsedPage]:
        from unstructured.partition.html import partition_html

        # It reads only <main> where there is one, and drops <del>: the page is all that is displayed.
        whole = _DEL_TAG.sub(r"<\1s", _MAIN_TAG.sub(r"<\1div", text))
        builder = PageBuilder()
        for element in partition_html(text=whole, languages=[""]):
            level = elements.heading_level(element)
            if level is not None:
                builder.add("heading", element.text, level)
            elif type(element).__name__ == "Table" and element.metadata.text_as_html:
                builder.add_table(elements.table_rows(element.metadata.text_as_html))
            else:
                kind = elements.kind_of(element)
                depth = element.metadata.category_depth
                builder.add(kind, element.text, max(1, int(depth or 1)) if kind == "list_item" else None)
        return [builder.page(1, None, "unstructured")]

    def by_walk() -> list[ParsedPage]:
        builder = PageBuilder()
        for kind, words, level in blocks:
            builder.add(kind, words, level)
        return [builder.page(1, None, "lxml")]

    return elements.first_that_keeps(reference, by_unstructured, by_walk)


def _walk(body: Any) -> Iterator[tuple[str, str, int | None]]:
    """(kind, text, level) of the displayed blocks in order; a table row is one block."""
    words: list[str] = []
    kind, level = "paragraph", None

    def flush() -> Iterator[tuple[str, str, int | None]]:
        text = " ".join("".join(words).split())
        words.clear()
        if text:
            yield kind, text, level

    # By events, not recursion: nesting is under the control of whoever made the file.
    from lxml import etree

    for event, node in etree.iterwalk(body, events=("start", "end")):
        tag = node.tag if isinstance(node.tag, str) else ""
        if tag in ("td", "th"):
            if event == "end":
                words.append(" | ")
        elif tag in _BREAKING:
            yield from flush()
            if event == "start" and tag in _HEADINGS:
                kind, level = "heading", int(tag[1])
            elif event == "start" and tag == "li":
                kind, level = "list_item", 1
            elif event == "end" or tag != "br":
                kind, level = "paragraph", None
        if event == "start":
            words.append(node.text or "" if tag else "")
        elif node is not body:
            words.append(node.tail or "")
    yield from flush()


def _markdown_page(text: str) -> ParsedPage:
    """The source as it is, with the elements that unstructured finds in it placed on their lines."""
    text = clean(text).strip("\n")
    try:
        from unstructured.partition.md import partition_md

        found = partition_md(text=text, languages=[""])
    except (MemoryError, ParseError):
        raise
    except Exception:  # noqa: BLE001 - odd markup: the text stands without structure
        found = []
    squeezed = Squeezed(text)
    placed: list[Element] = []
    cursor = 0
    for element in found:
        span = squeezed.locate(element.text, cursor)
        if span is None:
            continue
        start = max(text.rfind("\n", 0, span[0]) + 1, placed[-1].end if placed else 0)
        end = text.find("\n", span[1])
        end = len(text) if end < 0 else end
        if start >= end:
            continue
        level = elements.heading_level(element)
        kind = "heading" if level is not None else elements.kind_of(element)
        if kind == "list_item":
            level = max(1, int(element.metadata.category_depth or 1))
        placed.append(Element(kind, start, end, None, level))
        cursor = squeezed.index_of(end)
    state: Any = "ok" if text.strip() else "blank"
    return ParsedPage(1, None, None, None, 0, text, (), tuple(placed), state, parser="unstructured")
