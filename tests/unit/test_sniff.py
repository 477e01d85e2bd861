"""What a file is, by its bytes; the name only chooses among kinds of text."""

import zipfile
from pathlib import Path

import pytest

from ingestion.errors import ParseError
from ingestion.sniff import sniff

FILES = Path(__file__).parents[1] / "data" / "files"


@pytest.mark.parametrize(
    ("name", "as_name", "kind"),
    [
        ("agreement.pdf", "a.pdf", "pdf"),
        ("agreement.pdf", "no extension", "pdf"),
        ("junk_before.pdf", "a.PDF", "pdf"),
        ("report.docx", "a.docx", "docx"),
        ("report.docx", "a.docm", "docx"),
        ("report.docx", "a", "docx"),
        ("budget.xlsx", "a.xlsm", "xlsx"),
        ("prices.html", "a.htm", "html"),
        ("prices.html", "a", "html"),
        ("prices.html", "a.txt", "txt"),
        ("handbook.md", "a.md", "md"),
        ("handbook.md", "a.unknown", "txt"),
        ("lease_utf16.txt", "a.txt", "txt"),
        ("utf16.csv", "a.csv", "csv"),
        ("letter.eml", "a.eml", "eml"),
        ("letter.eml", "a", "eml"),
    ],
)
def test_kinds(name: str, as_name: str, kind: str) -> None:
    assert sniff(FILES / name, as_name).name == kind


@pytest.mark.parametrize(
    ("name", "as_name", "code"),
    [
        ("empty.pdf", "a.pdf", "empty"),
        ("renamed.xlsx", "a.xlsx", "type_mismatch"),
        ("agreement.pdf", "a.docx", "type_mismatch"),
        ("agreement.pdf", "a.txt", "type_mismatch"),
        ("lease_ca.txt", "a.pdf", "type_mismatch"),
        ("budget.xlsx", "a.csv", "type_mismatch"),
        ("protected.xlsx", "a.xlsx", "needs_password"),
        ("protected.xlsx", "a", "needs_password"),
        ("protected.xlsx", "a.pdf", "type_mismatch"),
    ],
)
def test_refusals(name: str, as_name: str, code: str) -> None:
    with pytest.raises(ParseError) as caught:
        sniff(FILES / name, as_name)
    assert caught.value.code == code
    assert caught.value.message.endswith(".")


@pytest.mark.parametrize(
    ("data", "as_name", "code"),
    [
        (b"\x89PNG\r\n\x1a\n\x00\x00", "a.png", "unsupported_format"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "a.txt", "type_mismatch"),
        (bytes(range(256)) * 40, "a.bin", "unsupported_format"),
        (bytes(range(256)) * 40, "a.md", "type_mismatch"),
        (bytes(range(256)) * 40, "a.pdf", "corrupt"),
        (bytes.fromhex("d0cf11e0a1b11ae1") + bytes(512), "a.doc", "unsupported_format"),
        (bytes.fromhex("d0cf11e0a1b11ae1") + bytes(512), "a.pdf", "type_mismatch"),
        (b"PK\x03\x04 cut off", "a.docx", "corrupt"),
        (b"{\\rtf1 words}", "a.rtf", "unsupported_format"),
        (b"%PDF-1.4" + b"x" * 20, "a.md", "type_mismatch"),
    ],
)
def test_other_bytes(tmp_path: Path, data: bytes, as_name: str, code: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(ParseError) as caught:
        sniff(path, as_name)
    assert caught.value.code == code


def test_a_pdf_mark_far_inside_is_no_pdf(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"words " * 300 + b"%PDF-1.4")
    assert sniff(path, "a.txt").name == "txt"


def test_a_plain_zip_has_no_reader(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "words")
    with pytest.raises(ParseError, match="no reader") as caught:
        sniff(path, "a.zip")
    assert caught.value.code == "unsupported_format"
