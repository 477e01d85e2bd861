"""Limits of container files (zip), checked before any parser sees them: a small file must not unpack to a huge one."""

import re
import struct
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from ingestion.errors import ParseError

_CHUNK_BYTES: Final = 256 * 1024
_SPOOL_BYTES: Final = 8 * 1024**2
# OOXML and ODF forbid it; entities that name each other expand without end. In ASCII and in UTF-16, both orders.
_DOCTYPE = re.compile(
    b"|".join(word.encode(code) for word in ("<!DOCTYPE", "<!ENTITY") for code in ("ascii", "utf-16-le", "utf-16-be"))
)
_ZIP_MAGIC: Final = b"PK\x03\x04"


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """What a container may hold. The ratio counts for members over `ratio_from_bytes` when unpacked.

    Members that are not XML (embedded files, bitmaps) are copied, never parsed; real ones pack far over the ratio, so
    theirs counts from `binary_ratio_from_bytes`.
    """

    entries: int = 10_000
    total_bytes: int = 500 * 1024**2
    ratio: int = 100
    ratio_from_bytes: int = 1024**2
    binary_ratio_from_bytes: int = 16 * 1024**2
    depth: int = 2


DEFAULT_LIMITS: Final = ArchiveLimits()


def check_archive(path: Path, limits: ArchiveLimits = DEFAULT_LIMITS) -> None:
    """Raise ParseError archive_limits (or corrupt) for a container over the limits.

    First the directory alone (declared sizes), then every member is inflated and counted, since declared sizes lie.
    Nothing is kept: memory stays at one chunk.
    """
    with path.open("rb") as file:
        _check(file, limits, depth=1, budget=_Budget(limits.total_bytes))


class _Budget:
    def __init__(self, total_bytes: int) -> None:
        self.left_bytes = total_bytes
        self.total_bytes = total_bytes

    def take(self, size_bytes: int) -> None:
        self.left_bytes -= size_bytes
        if self.left_bytes < 0:
            raise _refused("unpacks to more than is allowed", limit_bytes=self.total_bytes)


def _check(file: BinaryIO, limits: ArchiveLimits, depth: int, budget: _Budget) -> None:
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) > limits.entries:
                raise _refused("has too many members", entries=len(members), limit=limits.entries)
            declared = sum(member.file_size for member in members)
            if declared > limits.total_bytes:
                raise _refused("declares too many bytes", declared_bytes=declared, limit_bytes=limits.total_bytes)
            for member in members:
                _check_ratio(member, member.file_size, limits)
            for member in members:
                if not member.is_dir():
                    _inflate(archive, member, limits, depth, budget)
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error, OSError, NotImplementedError, ValueError) as error:
        raise ParseError("corrupt", "The file is damaged: its container cannot be read.") from error
    except RuntimeError as error:  # zipfile's own for encrypted members
        raise ParseError("needs_password", "The container is encrypted.") from error


def _is_xml(member: zipfile.ZipInfo) -> bool:
    return member.filename.lower().endswith((".xml", ".rels", ".vml"))


def _check_ratio(member: zipfile.ZipInfo, size_bytes: int, limits: ArchiveLimits) -> None:
    from_bytes = limits.ratio_from_bytes if _is_xml(member) else limits.binary_ratio_from_bytes
    packed_bytes = max(member.compress_size, 1)
    if size_bytes > from_bytes and size_bytes > limits.ratio * packed_bytes:
        raise _refused("holds a member that is packed too tightly", ratio=size_bytes // packed_bytes)


def _inflate(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, limits: ArchiveLimits, depth: int, budget: _Budget
) -> None:
    size_bytes = 0
    is_xml = _is_xml(member)
    # A nested archive needs seeking, which a zip stream does by inflating again and again: it goes to a file.
    with archive.open(member) as stream, tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as copy:
        tail = b""
        nested = False
        while chunk := stream.read(_CHUNK_BYTES):
            if size_bytes == 0:
                nested = chunk.startswith(_ZIP_MAGIC)
            size_bytes += len(chunk)
            budget.take(len(chunk))
            _check_ratio(member, size_bytes, limits)
            if is_xml:
                if _DOCTYPE.search(tail + chunk):
                    raise _refused("holds XML with a document type declaration")
                tail = chunk[-32:]
            if nested:
                if depth > limits.depth:
                    raise _refused("nests archives too deeply", depth=depth)
                copy.write(chunk)
        if nested:
            copy.seek(0)
            _check(cast(BinaryIO, copy), limits, depth + 1, budget)


def _refused(why: str, **facts: Any) -> ParseError:
    return ParseError("archive_limits", f"The container {why}; it was not opened.", **facts)
