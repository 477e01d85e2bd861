"""The reader table: format -> probe and parse. Runs inside the sandbox's child; not safe to run elsewhere."""

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ingestion.canonical import ParsedPage, Probe
from ingestion.errors import ParseError
from ingestion.limits import check_archive
from ingestion.sniff import FileKind, sniff

MAX_TEXT_BYTES: Final = 200 * 1024**2
_CONTAINERS: Final = frozenset({"docx", "xlsx"})
_MODULES: Final = {
    "pdf": "ingestion.pdf_structure",
    "docx": "ingestion.office",
    "xlsx": "ingestion.office",
    "html": "ingestion.markup",
    "md": "ingestion.markup",
    "txt": "ingestion.text",
    "csv": "ingestion.text",
    "eml": "ingestion.mail",
}


def warm(kind_hint: str, models_dir: Path) -> None:
    """Import what a format needs, so that forked children share it."""
    name = _MODULES.get(kind_hint)
    if name is None:
        return
    module = importlib.import_module(name)
    prepare = getattr(module, "prepare", None)
    if prepare is not None:
        prepare(models_dir)


def probe(path: Path, filename: str, password: str | None = None) -> Probe:
    """Kind, page count, metadata. Raises ParseError."""
    path, kind = _admit(path, filename, password)
    facts: dict[str, Any] = _reader(kind).probe(path, kind.name, password)
    return Probe(kind=kind.name, media_type=kind.media_type, **facts)


def parse(path: Path, filename: str, first: int, last: int, password: str | None = None) -> list[ParsedPage]:
    """Pages first..last (1-based, inclusive). Raises ParseError; a page that fails alone is in state `failed`."""
    path, kind = _admit(path, filename, password)
    pages: list[ParsedPage] = _reader(kind).parse(path, kind.name, first, last, password)
    return pages


def _admit(path: Path, filename: str, password: str | None) -> tuple[Path, FileKind]:
    """The file to read (decrypted into the own temporary folder when needed) and its kind, after all limits."""
    try:
        kind = sniff(path, filename)
    except ParseError as error:
        if error.code != "needs_password" or not password:
            raise
        from ingestion.office import decrypted

        path = decrypted(path, password)
        kind = sniff(path, filename)
    if kind.name in _CONTAINERS:
        check_archive(path)
    elif kind.name != "pdf" and path.stat().st_size > MAX_TEXT_BYTES:
        raise ParseError("too_large", "The text file is over the size limit.", limit_bytes=MAX_TEXT_BYTES)
    return path, kind


def _reader(kind: FileKind) -> ModuleType:
    return importlib.import_module(_MODULES[kind.name])
