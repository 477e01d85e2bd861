"""Every format through the real sandbox: what a person would read, structure from the format, typed refusals."""

import csv
import io
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ingestion.canonical import Element, ParsedPage, Probe
from ingestion.chunking import chunk
from ingestion.errors import CODES, ParseError
from ingestion.pipeline import canonical_of, ranges
from ingestion.sandbox import Sandbox

FILES = Path(__file__).parents[1] / "data" / "files"
PASSWORD = "open sesame"
Reader = Callable[..., tuple[Probe, list[ParsedPage]]]
GOOD = sorted(
    path.name
    for path in FILES.iterdir()
    if path.name
    not in {
        "bomb.docx", "empty.pdf", "empty.txt", "encrypted.pdf", "laughs.docx", "protected.xlsx", "renamed.xlsx",
        "truncated.pdf",
    }
)  # fmt: skip


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """No models folder: the readers must do without a download."""
    with Sandbox(tmp_path_factory.mktemp("models")) as running:
        yield running


@pytest.fixture
def read(sandbox: Sandbox, tmp_path: Path) -> Reader:
    """Read a file as the product stores it: under a name without an ending."""

    def reader(name: str, password: str | None = None) -> tuple[Probe, list[ParsedPage]]:
        path = tmp_path / "blob"
        shutil.copyfile(FILES / name, path)
        probe = sandbox.probe(path, name, password)
        pages = [page for span in ranges(probe.page_count) for page in sandbox.parse(path, name, *span, password)]
        return probe, pages

    return reader


def found(page: ParsedPage, kind: str) -> list[str]:
    return [page.text[element.start : element.end] for element in page.elements if element.kind == kind]


def of_kind(page: ParsedPage, kind: str) -> list[Element]:
    return [element for element in page.elements if element.kind == kind]


@pytest.mark.parametrize("name", GOOD)
def test_every_good_file_gives_pages_whose_spans_are_in_order(read: Reader, name: str) -> None:
    probe, pages = read(name)
    assert len(pages) == probe.page_count
    assert [page.number for page in pages] == list(range(1, probe.page_count + 1))
    for page in pages:
        position = 0
        for element in page.elements:
            assert 0 <= element.start <= element.end <= len(page.text)
            if element.end > element.start:  # a deletion or a comment stands at a point inside a paragraph
                assert element.start >= position
                position = element.end
    canonical = canonical_of(pages)
    chunks = chunk(canonical, pages, title=probe.title or name)
    assert "".join("".join(item.text.split()) for item in chunks) == "".join(canonical.text.split())


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("empty.pdf", "empty"),
        ("empty.txt", "empty"),
        ("encrypted.pdf", "needs_password"),
        ("protected.xlsx", "needs_password"),
        ("truncated.pdf", "corrupt"),
        ("renamed.xlsx", "type_mismatch"),
        ("bomb.docx", "archive_limits"),
        ("laughs.docx", "archive_limits"),
    ],
)
def test_every_bad_file_has_its_own_code_and_sentence(sandbox: Sandbox, name: str, code: str) -> None:
    with pytest.raises(ParseError) as caught:
        sandbox.probe(FILES / name, name)
    assert caught.value.code == code
    assert code in CODES
    assert caught.value.message.endswith(".")
    assert not caught.value.retryable


def test_docx_keeps_insertions_and_notes_deletions(read: Reader) -> None:
    probe, (page,) = read("report.docx")
    assert page.parser == "unstructured"
    assert (probe.title, probe.author) == ("Yearly report", "Legal")
    assert "The fee is TWO million euros." in page.text
    assert "ONE" not in page.text
    (revision,) = of_kind(page, "revision")
    assert revision.meta["text"] == "ONE"
    assert revision.meta["author"] == "Anna"
    assert page.text[: revision.start].endswith("The fee is ")
    assert "This stands in a content control." in page.text


def test_docx_structure_comes_from_styles(read: Reader) -> None:
    _, (page,) = read("report.docx")
    assert found(page, "title") == ["Yearly report"]
    assert [(page.text[e.start : e.end], e.level) for e in of_kind(page, "heading")] == [("Fees", 1), ("Hours", 2)]
    assert found(page, "table") == ["Year | Hours | Amount\n2024 | 310 | 37,200\n2025 | 280 | 33,600"]
    assert found(page, "list_item") == ["First point", "Second point"]
    assert "The fee is due in January." in found(page, "paragraph")
    (comment,) = of_kind(page, "comment")
    assert comment.meta["text"] == "Please check this."
    assert "Please check" not in page.text


def test_xlsx_shows_values_as_the_sheet_does(read: Reader) -> None:
    probe, pages = read("budget.xlsx")
    assert [page.label for page in pages] == ["Budget", "Dates"]
    assert probe.facts["hidden_sheets"] == ["Secret"]
    assert found(pages[0], "table") == [
        "Item | Amount | Share\nRent | 12,000.00 | 25%\nSalaries | 36,000.50 | 75%",
        "Total | =SUM(B2:B3)",
    ]
    assert not any("Hidden words" in page.text for page in pages)


def test_passwords_open_office_files(sandbox: Sandbox, read: Reader) -> None:
    probe, pages = read("protected.xlsx", PASSWORD)
    assert probe.kind == "xlsx"
    assert "36,000.50" in pages[0].text
    with pytest.raises(ParseError, match="does not open") as caught:
        sandbox.probe(FILES / "protected.xlsx", "protected.xlsx", "wrong")
    assert caught.value.code == "needs_password"


def test_html_undeclared_charset_and_everything_displayed(read: Reader) -> None:
    probe, (page,) = read("prices.html")
    assert (probe.title, probe.facts["charset"]) == ("Preus", "windows-1252")
    assert page.parser == "unstructured"
    assert "Preu: 5 € – café “quote”" in page.text
    assert "Outside of main." in page.text
    assert "hidden" not in page.text
    assert found(page, "table") == ["Any | Preu\n2024 | 5 €"]
    assert found(page, "heading") == ["Preus"]


def test_markdown_keeps_its_characters_and_knows_code_from_headings(read: Reader) -> None:
    _, (page,) = read("handbook.md")
    assert page.parser == "unstructured"
    assert page.text == (FILES / "handbook.md").read_text().strip()
    assert [(page.text[e.start : e.end], e.level) for e in of_kind(page, "heading")] == [
        ("# Handbook", 1),
        ("## Holidays", 2),
    ]
    assert found(page, "code") == ["# not a heading"]
    assert found(page, "table")[0].startswith("| Year | Days |")
    assert any("[site]" in words for words in found(page, "paragraph"))


@pytest.mark.parametrize("name", ["lease_ca.txt", "lease_utf16.txt", "lease_latin1.txt"])
def test_text_in_any_charset_is_the_same_text(read: Reader, name: str) -> None:
    _, (page,) = read(name)
    assert page.text == (FILES / "lease_ca.txt").read_text().strip()
    assert len(found(page, "paragraph")) == 2


def test_csv_rows_are_kept_as_written(read: Reader) -> None:
    for name, delimiter, charset in (
        ("ragged.csv", ",", "utf-8"),
        ("semicolon.csv", ";", "utf-8"),
        ("utf16.csv", ",", "utf-16"),
    ):
        _, (page,) = read(name)
        assert page.text == (FILES / name).read_text(encoding=charset).strip()
        (table,) = of_kind(page, "table")
        assert table.meta["delimiter"] == delimiter
        rows = list(csv.reader(io.StringIO(page.text), delimiter=delimiter))
        assert table.meta["ragged"] == (len({len(row) for row in rows}) > 1)


def test_mail_body_and_attachments(read: Reader) -> None:
    probe, (page,) = read("letter.eml")
    assert page.parser == "unstructured"
    assert probe.title == "Preu de la llicència"
    assert probe.created == "2024-03-01T12:00:00+01:00"
    assert [item["name"] for item in probe.facts["attachments"]] == ["figures.csv", "logo.png"]
    assert page.text.startswith("From: Anna Serra <anna@example.com>\nTo: Bea")
    assert page.text.count("EUR 900 a month") == 1
    assert "Attachment (not read): logo.png" in page.text
    assert found(page, "heading") == ["Price"]


@pytest.mark.parametrize(
    ("name", "data", "code"),
    [
        ("a.html", b"<html><body><script>x</script></body></html>", "no_text"),
        ("a.txt", b" \n\t ", "no_text"),
        ("a.eml", b"From: a@b.c\nSubject: x\nContent-Type: multipart/encrypted; boundary=b\n\n--b--\n", "needs_key"),
        ("a.pdf", b"%PDF-1.4\n%%EOF\n", "corrupt"),
        ("a.docx", b"PK\x05\x06" + bytes(18), "type_mismatch"),
    ],
)
def test_empty_results_are_failures(sandbox: Sandbox, tmp_path: Path, name: str, data: bytes, code: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ParseError) as caught:
        sandbox.parse(path, name, 1, sandbox.probe(path, name).page_count)
    assert caught.value.code == code


def test_mail_saved_as_utf16_is_read(sandbox: Sandbox, read: Reader, tmp_path: Path) -> None:
    path = tmp_path / "a.eml"
    path.write_bytes("From: a@example.com\r\nSubject: Café\r\n\r\nWords of the body.\r\n".encode("utf-16"))
    (page,) = sandbox.parse(path, "a.eml", 1, 1)
    assert "Words of the body." in page.text
    assert "\x00" not in page.text
