"""Containers that would unpack to more than is allowed are refused before a parser sees them."""

import io
import struct
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from ingestion.errors import ParseError
from ingestion.limits import ArchiveLimits, check_archive

FILES = Path(__file__).parents[1] / "data" / "files"


def archive(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
        for name, data in members.items():
            target.writestr(name, data)
    return path


def refusal(path: Path, limits: ArchiveLimits | None = None) -> ParseError:
    with pytest.raises(ParseError) as caught:
        check_archive(path, limits or ArchiveLimits())
    return caught.value


def test_real_documents_pass() -> None:
    check_archive(FILES / "report.docx")
    check_archive(FILES / "budget.xlsx")


def test_bombs_are_refused_in_little_memory() -> None:
    tracemalloc.start()
    error = refusal(FILES / "bomb.docx")
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert error.code == "archive_limits"
    assert error.facts["ratio"] > 100
    assert peak_bytes < 10 * 1024**2


def test_the_ratio_is_stricter_for_what_a_parser_reads(tmp_path: Path) -> None:
    zeros = bytes(4 * 1024**2)
    check_archive(archive(tmp_path / "a", {"word/embeddings/object.bin": zeros}))
    assert refusal(archive(tmp_path / "b", {"word/document.xml": zeros})).code == "archive_limits"


def test_entities_are_refused(tmp_path: Path) -> None:
    assert refusal(FILES / "laughs.docx").code == "archive_limits"
    utf16 = '<?xml version="1.0"?><!DOCTYPE d [<!ENTITY a "b">]><d/>'.encode("utf-16")
    assert refusal(archive(tmp_path / "a", {"word/document.xml": utf16})).code == "archive_limits"
    late = b"<d><!--" + b"x" * 600_000 + b"--><!DOCTYPE d></d>"
    assert refusal(archive(tmp_path / "b", {"word/document.xml": late})).code == "archive_limits"
    check_archive(archive(tmp_path / "c", {"word/media/text.bin": b"<!DOCTYPE html>"}))


def test_a_lying_directory_is_counted_while_inflating(tmp_path: Path) -> None:
    """The directory says 10 bytes; the stream gives 40 MB."""
    path = archive(tmp_path / "a", {"word/document.xml": bytes(40 * 1024**2)})
    data = bytearray(path.read_bytes())
    at = data.rfind(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 10)
    path.write_bytes(data)
    assert refusal(path).code in ("archive_limits", "corrupt")


def test_entries_totals_and_depth(tmp_path: Path) -> None:
    many = archive(tmp_path / "many", {f"{number}.xml": b"x" for number in range(30)})
    assert refusal(many, ArchiveLimits(entries=20)).facts == {"entries": 30, "limit": 20}
    assert refusal(many, ArchiveLimits(total_bytes=20)).code == "archive_limits"
    inner = (FILES / "budget.xlsx").read_bytes()
    for _ in range(3):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as target:
            target.writestr("inner.zip", inner)
        inner = buffer.getvalue()
    deep = tmp_path / "deep"
    deep.write_bytes(inner)
    assert refusal(deep).code == "archive_limits"
    one = archive(tmp_path / "one", {"embedded.xlsx": (FILES / "budget.xlsx").read_bytes()})
    check_archive(one)


def test_damage_and_encryption(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes((FILES / "report.docx").read_bytes()[:-200])
    assert refusal(broken).code == "corrupt"
