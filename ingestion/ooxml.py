"""What Word and Excel packages share: hardened XML, and the ISO strict dialect turned into the usual one."""

import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

from lxml import etree

from ingestion.errors import ParseError

_SCHEMAS: Final = b"http://schemas.openxmlformats.org/"
_PURL: Final = b"http://purl.oclc.org/ooxml/"
# ISO strict documents use other namespaces for the same vocabulary (ISO/IEC 29500-1 and -4).
_STRICT: Final = (
    (_PURL + b"wordprocessingml/main", _SCHEMAS + b"wordprocessingml/2006/main"),
    (_PURL + b"spreadsheetml/main", _SCHEMAS + b"spreadsheetml/2006/main"),
    (_PURL + b"drawingml/", _SCHEMAS + b"drawingml/2006/"),
    (_PURL + b"officeDocument/", _SCHEMAS + b"officeDocument/2006/"),
)


def transitional(part: bytes) -> bytes:
    """An XML part with the strict namespaces replaced; others come back as they are."""
    if _PURL in part:
        for strict, usual in _STRICT:
            part = part.replace(strict, usual)
    return part


def parse_xml(part: bytes) -> Any:
    """Root of an XML part, by a parser that resolves nothing and refuses giants. Raises ParseError corrupt."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=False, load_dtd=False)
    try:
        return etree.fromstring(transitional(part), parser)
    except etree.XMLSyntaxError:
        raise ParseError("corrupt", "The document is damaged: a part of it is not valid XML.") from None


def transitional_copy(path: Path) -> Path:
    """The package itself, or a rewritten copy in the temporary folder when it is in the strict dialect."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.endswith((".xml", ".rels"))]
        if not any(_PURL in archive.read(name) for name in names if name.count("/") <= 1):
            return path
        target = Path(tempfile.mkdtemp()) / "package"
        with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as copy:
            for name in archive.namelist():
                part = archive.read(name)
                copy.writestr(name, transitional(part) if name in names else part)
    return target
