"""DOCX: unstructured reads it, after a pass over the XML that keeps what it would lose.

The pass accepts insertions, notes deletions, opens content controls and text boxes, and marks notes and comments.
A document that still loses words goes to a plain reader of ours.
"""

import io
import re
import zipfile
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from lxml import etree

from ingestion import elements
from ingestion.canonical import ParsedPage, clean
from ingestion.elements import MARK_BASE, MARK_LIMIT, PageBuilder
from ingestion.errors import ParseError
from ingestion.ooxml import parse_xml, transitional

_W: Final = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_MC: Final = "http://schemas.openxmlformats.org/markup-compatibility/2006"
_M: Final = "http://schemas.openxmlformats.org/officeDocument/2006/math"
_NS: Final = {"w": _W, "mc": _MC, "m": _M}
_UNWRAP: Final = ("ins", "moveTo", "smartTag", "customXml", "fldSimple", "bdo", "dir", "sdtContent", "sdt")
_HEADING_STYLE = re.compile(r"^heading\s*(\d)$", re.IGNORECASE)


def _w(name: str) -> str:
    return f"{{{_W}}}{name}"


@dataclass(slots=True)
class _Marks:
    """What the marks in the text stand for, by number."""

    items: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def add(self, kind: str, meta: dict[str, Any]) -> str:
        """Register and return the character to put into the text (empty when there are too many)."""
        if len(self.items) >= MARK_LIMIT:
            return ""
        self.items.append((kind, meta))
        return chr(MARK_BASE + len(self.items) - 1)


def parse(path: Path) -> list[ParsedPage]:
    """All pages (by the page breaks that Word stored, else one)."""
    marks = _Marks()
    package, body = _normalised(path, marks)
    reference = sum(elements.tokens("".join(node.itertext())) for node in body.iter(_w("t")))
    pages = elements.first_that_keeps(
        # Words split over runs count several times in the XML: compare with text joined by paragraph instead.
        min(reference, sum(elements.tokens(_plain(p)) for p in body.iter(_w("p")))),
        lambda: _by_unstructured(package, marks),
        lambda: _by_hand(body, marks),
    )
    elements.require_text(pages, "The document holds no text (only pictures or embedded parts).")
    return pages


def _normalised(path: Path, marks: _Marks) -> tuple[bytes, Any]:
    """The package with a changed main part, and that part's body."""
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        main = _main_part(archive)
        if main not in names:
            raise ParseError("corrupt", "The document is damaged: its main part is missing.")
        root = parse_xml(archive.read(main))
        folder = main.rpartition("/")[0]
        notes = {
            kind: _notes(archive, f"{folder}/{kind}s.xml", kind) if f"{folder}/{kind}s.xml" in names else {}
            for kind in ("footnote", "endnote", "comment")
        }
        body = root.find(_w("body"))
        if body is None:
            raise ParseError("corrupt", "The document is damaged: it has no body.")
        _accept_changes(body, marks)
        _mark_notes(body, notes, marks)
        _open_boxes(body)
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as target:
            for name in archive.namelist():
                data = archive.read(name)
                if name == main:
                    data = etree.tostring(root, xml_declaration=True, encoding="UTF-8", standalone=True)
                elif name.endswith((".xml", ".rels")):
                    data = transitional(data)
                target.writestr(name, data)
    return buffer.getvalue(), body


def _main_part(archive: zipfile.ZipFile) -> str:
    try:
        rels = parse_xml(archive.read("_rels/.rels"))
    except KeyError:
        return "word/document.xml"
    for rel in rels:
        if str(rel.get("Type", "")).endswith("/officeDocument"):
            return str(rel.get("Target", "")).lstrip("/")
    return "word/document.xml"


def _notes(archive: zipfile.ZipFile, name: str, kind: str) -> dict[str, dict[str, Any]]:
    """Notes by id: text, author, date. Separators are no notes."""
    found: dict[str, dict[str, Any]] = {}
    for note in parse_xml(archive.read(name)).iter(_w(kind)):
        if note.get(_w("type")) in ("separator", "continuationSeparator", "continuationNotice"):
            continue
        text = "\n".join(_plain(paragraph) for paragraph in note.iter(_w("p"))).strip()
        found[str(note.get(_w("id")))] = {
            "text": clean(text),
            "author": note.get(_w("author")),
            "date": note.get(_w("date")),
        }
    return found


def _mark_run(mark: str) -> Any:
    run = etree.Element(_w("r"))
    etree.SubElement(run, _w("t")).text = mark
    return run


def _replace(node: Any, new: list[Any]) -> None:
    parent = node.getparent()
    at = parent.index(node)
    parent.remove(node)
    for offset, item in enumerate(new):
        parent.insert(at + offset, item)


def _accept_changes(body: Any, marks: _Marks) -> None:
    for row in list(body.iter(_w("tr"))):
        if row.find("w:trPr/w:del", _NS) is not None:
            _drop(row, marks)
    for name in ("del", "moveFrom"):
        for node in list(body.iter(_w(name))):
            if node.getparent().tag in (_w("rPr"), _w("trPr")):
                node.getparent().remove(node)
            else:
                _drop(node, marks)
    for equation in list(body.iter(f"{{{_M}}}oMath")):
        text = "".join(node.text or "" for node in equation.iter(f"{{{_M}}}t"))
        _replace(equation, [_mark_run(text)])
    for paragraph in list(body.iter(f"{{{_M}}}oMathPara")):
        _replace(paragraph, list(paragraph))
    for fallback in list(body.iter(f"{{{_MC}}}Fallback")):
        fallback.getparent().remove(fallback)
    for tag in (f"{{{_MC}}}Choice", f"{{{_MC}}}AlternateContent", *(_w(name) for name in _UNWRAP)):
        for node in list(body.iter(tag)):
            if node.getparent().tag in (_w("rPr"), _w("trPr"), _w("tcPr"), _w("numPr")):
                node.getparent().remove(node)
            elif tag == _w("sdt"):
                _replace(node, [child for child in node if child.tag not in (_w("sdtPr"), _w("sdtEndPr"))])
            else:
                _replace(node, [child for child in node if not child.tag.endswith("Pr")])


def _drop(node: Any, marks: _Marks) -> None:
    """Take a deletion out of the text; a mark keeps its place where a run can stand."""
    text = "".join(item.text or "" for item in node.iter(_w("delText"), _w("t")))
    meta = {
        "change": "moved" if node.tag == _w("moveFrom") else "deleted",
        "text": clean(text),
        "author": node.get(_w("author")),
        "date": node.get(_w("date")),
    }
    in_paragraph = node.getparent().tag == _w("p")
    mark = marks.add("revision", meta) if text.strip() and in_paragraph else ""
    _replace(node, [_mark_run(mark)] if mark else [])


def _mark_notes(body: Any, notes: dict[str, dict[str, dict[str, Any]]], marks: _Marks) -> None:
    for kind in ("footnote", "endnote", "comment"):
        for reference in list(body.iter(_w(f"{kind}Reference"))):
            note = notes[kind].get(str(reference.get(_w("id"))))
            run = reference.getparent()
            if note is None or not note["text"] or run.tag != _w("r"):
                continue
            mark = marks.add(kind, note)
            if mark:
                text = etree.Element(_w("t"))
                text.text = mark
                run.replace(reference, text)


def _open_boxes(body: Any) -> None:
    """Move the paragraphs of text boxes behind the paragraph that anchors them, once."""
    for box in list(body.iter(_w("txbxContent"))):
        anchor = next((node for node in box.iterancestors(_w("p"))), None)
        content = [deepcopy(child) for child in box]
        box.getparent().remove(box)
        if anchor is not None:
            for child in reversed(content):
                anchor.addnext(child)


def _plain(paragraph: Any) -> str:
    """Text of a paragraph as displayed: runs, tabs, breaks; not that of paragraphs nested in it."""
    parts: list[str] = []
    for node in paragraph.iter(_w("t"), _w("tab"), _w("br"), _w("cr"), _w("noBreakHyphen")):
        if next(node.iterancestors(_w("p")), None) is not paragraph:
            continue
        if node.tag == _w("t"):
            parts.append(node.text or "")
        elif node.tag == _w("noBreakHyphen"):
            parts.append("-")
        elif node.getparent().tag == _w("r"):  # a tab in w:tabs is a setting
            parts.append("\t" if node.tag == _w("tab") else "\n")
    return "".join(parts)


def _by_unstructured(package: bytes, marks: _Marks) -> list[ParsedPage]:
    from unstructured.partition.docx import partition_docx

    found = partition_docx(file=io.BytesIO(package), languages=[""], include_page_breaks=False)
    builders: dict[int, PageBuilder] = {}
    for element in found:
        number = max(int(element.metadata.page_number or 1), max(builders, default=1))
        builder = builders.setdefault(number, PageBuilder())
        level = elements.heading_level(element, styles_only=True)
        if level is not None:
            style = (element.metadata.style_name or "").lower()
            builder.add("title" if style == "title" else "heading", element.text, level)
        elif type(element).__name__ == "Table" and element.metadata.text_as_html:
            builder.add_table(elements.table_rows(element.metadata.text_as_html))
        else:
            kind = elements.kind_of(element)
            depth = element.metadata.category_depth
            builder.add(kind, element.text, int(depth or 0) + 1 if kind == "list_item" else None)
    return _pages(builders, marks, "unstructured")


def _by_hand(body: Any, marks: _Marks) -> list[ParsedPage]:
    builder = PageBuilder()
    for node in _blocks(body):
        if node.tag == _w("tbl"):
            builder.add_table([[_cell(cell) for cell in row.iter(_w("tc"))] for row in node.iter(_w("tr"))])
            continue
        style = node.find("w:pPr/w:pStyle", _NS)
        name = "" if style is None else str(style.get(_w("val"), ""))
        match = _HEADING_STYLE.match(name)
        if match:
            builder.add("heading", _plain(node), int(match.group(1)))
        elif name.lower() == "title":
            builder.add("title", _plain(node), 1)
        elif node.find("w:pPr/w:numPr", _NS) is not None:
            builder.add("list_item", _plain(node), 1)
        else:
            builder.add("paragraph", _plain(node))
    return _pages({1: builder}, marks, "fullread")


def _blocks(body: Any) -> Iterator[Any]:
    """Paragraphs and tables that stand in no other paragraph or table."""
    for node in body.iter(_w("p"), _w("tbl")):
        if next(node.iterancestors(_w("p"), _w("tbl")), None) is None:
            yield node


def _cell(cell: Any) -> str:
    return " ".join(text for paragraph in cell.iter(_w("p")) if (text := _plain(paragraph).strip()))


def _pages(builders: dict[int, PageBuilder], marks: _Marks, parser: str) -> list[ParsedPage]:
    """Finish pages 1..n: notes go to the end of the page that refers to them, the rest stays at its place."""
    pages: list[ParsedPage] = []
    for number in range(1, max(builders, default=1) + 1):
        builder = builders.get(number) or PageBuilder()
        for offset, mark in builder.marks:
            if mark >= len(marks.items):
                continue
            kind, meta = marks.items[mark]
            if kind in ("footnote", "endnote"):
                builder.add("paragraph", meta["text"], None, {"note": kind, "anchor": offset})
            else:
                builder.attach(kind, offset, meta)
        pages.append(builder.page(number, None, parser))
    return pages
