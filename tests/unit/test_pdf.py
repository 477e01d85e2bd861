"""PDF: text, line boxes in the displayed frame (checked on the rendered page), states, structure on pdfium's text."""

import itertools
import re
from pathlib import Path

import pypdfium2 as pdfium
import pytest
from pypdf import PdfReader

from ingestion import pdf, pdf_structure
from ingestion.canonical import ParsedPage
from ingestion.errors import ParseError

FILES = Path(__file__).parents[1] / "data" / "files"
SCALE = 2
PAGES = (("agreement", 3), ("rotated", 4), ("cropped", 3))


def parsed(name: str, password: str | None = None) -> list[ParsedPage]:
    return pdf_structure.parse(FILES / name, "pdf", 1, 999, password)


def ink(name: str, number: int) -> list[list[bool]]:
    """Rows of dark pixels of the displayed page, SCALE pixels a point."""
    document = pdfium.PdfDocument(FILES / name)
    page = document[number - 1]
    image = page.render(scale=SCALE, grayscale=True).to_pil()
    page.close()
    document.close()
    width = image.width
    data = image.tobytes()
    return [[value < 128 for value in data[row * width : (row + 1) * width]] for row in range(image.height)]


@pytest.mark.parametrize(
    ("name", "number"),
    [(f"{name}.pdf", number + 1) for name, count in PAGES for number in range(count)],
)
def test_line_boxes_hold_all_the_ink_and_nothing_but_ink(name: str, number: int) -> None:
    page = parsed(name)[number - 1]
    rows = ink(name, number)
    assert (len(rows[0]) / SCALE, len(rows) / SCALE) == pytest.approx((page.width, page.height), abs=1)
    covered = 0
    for line in page.lines:
        assert line.box is not None
        x0, y0, x1, y1 = (int(value * SCALE) for value in line.box)
        inside = sum(sum(row[max(0, x0 - 2) : x1 + 3]) for row in rows[max(0, y0 - 2) : y1 + 3])
        assert inside > 20, page.text[line.start : line.end]
        covered += inside
    assert covered >= 0.99 * sum(map(sum, rows))


def test_known_places() -> None:
    """The file's coordinates are written by hand: x 72, baseline 720 of 792 points, 18 points high."""
    title = parsed("agreement.pdf")[0].lines[0]
    assert title.box == pytest.approx((72, 792 - 720 - 14, 72 + 152, 792 - 720 + 5), abs=4)
    cropped = parsed("cropped.pdf")[0].lines[0]
    assert cropped.box is not None
    assert cropped.box[0] == pytest.approx(50, abs=3)
    assert cropped.box[3] == pytest.approx(100, abs=5)
    turned = parsed("rotated.pdf")[1]
    assert (turned.width, turned.height, turned.rotation) == (792, 612, 90)
    (box,) = [line.box for line in turned.lines if turned.text[line.start] == "T"]
    assert box is not None
    # On a page turned clockwise, what was 600 points up stands 600 points from the left, running downwards.
    assert box[0] == pytest.approx(600, abs=5)
    assert box[1] == pytest.approx(100, abs=3)
    assert box[3] - box[1] > box[2] - box[0]


def test_words_are_those_of_an_independent_reader() -> None:
    reader = PdfReader(FILES / "agreement.pdf")
    for page, other in zip(parsed("agreement.pdf"), reader.pages, strict=True):
        theirs = re.findall(r"\w+", other.extract_text().replace("termi-\n", "termi"))
        assert re.findall(r"\w+", page.text) == theirs


def test_lines_are_the_text() -> None:
    for page in parsed("agreement.pdf"):
        assert (
            "\n".join(page.text[line.start : line.end] for line in page.lines).replace("termi\n", "termi") == page.text
        )
        starts = [line.start for line in page.lines]
        assert starts == sorted(starts)


def test_a_word_broken_at_a_line_end_is_whole_and_its_lines_keep_their_boxes() -> None:
    page = parsed("agreement.pdf")[0]
    assert "Early termination needs" in page.text
    at = page.text.index("termination")
    touched = [line for line in page.lines if line.start < at + 11 and line.end > at]
    assert len(touched) == 2
    assert touched[0].box is not None
    assert touched[1].box is not None
    assert touched[1].box[1] > touched[0].box[1]


def test_structure_stands_on_the_text() -> None:
    first, second, third = parsed("agreement.pdf")
    assert first.parser == "liteparse"
    headings = [
        page.text[e.start : e.end] for page in (first, second, third) for e in page.elements if e.kind == "heading"
    ]
    assert headings == ["Service Agreement", "1. Fees", "2. Term", "3. Liability", "4. Governing law"]
    (table,) = [element for element in second.elements if element.kind == "table"]
    assert table.meta["rows"] == [["Year", "Hours", "Amount"], ["2024", "310", "37,200"], ["2025", "280", "33,600"]]
    assert "2024" in second.text[table.start : table.end]
    assert "33,600" in second.text[table.start : table.end]
    footers = [
        page.text[e.start : e.end] for page in (first, second, third) for e in page.elements if e.kind == "footer"
    ]
    assert footers == ["Page 1 of 3", "Page 2 of 3", "Page 3 of 3"]
    for page in (first, second, third):
        spans = [(element.start, element.end) for element in page.elements if element.end > element.start]
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_rows_stay_on_one_line() -> None:
    assert "2024 310 37,200" in parsed("agreement.pdf")[1].text


def test_columns_are_read_one_after_the_other() -> None:
    text = parsed("columns.pdf")[0].text
    assert text.index("Left column line 11") < text.index("Right column line 0")


def test_states_of_pages() -> None:
    pages = parsed("mixed.pdf")
    assert [page.state for page in pages] == ["ok", "needs_ocr", "blank", "ok"]
    assert pages[1].code == "no_text"
    assert pages[1].text == ""
    assert parsed("scan.pdf")[0].state == "needs_ocr"
    assert parsed("blank.pdf")[0].state == "blank"


def test_passwords() -> None:
    for password, sentence in ((None, "Give its password"), ("wrong", "does not open")):
        with pytest.raises(ParseError, match=sentence) as caught:
            pdf.probe(FILES / "encrypted.pdf", password)
        assert caught.value.code == "needs_password"
    assert "EUR 5,120" in parsed("encrypted.pdf", "open sesame")[0].text
    assert parsed("encrypted.pdf", "open sesame")[0].parser == "liteparse"


def test_an_owner_password_alone_is_no_obstacle_but_a_fact() -> None:
    facts = pdf.probe(FILES / "owner_only.pdf")["facts"]
    assert facts["owner_restricted"] is True
    assert isinstance(facts["permissions"], int)
    assert "EUR 5,120" in parsed("owner_only.pdf")[0].text


def test_cut_off_files_are_corrupt_even_when_pages_can_be_rescued(tmp_path: Path) -> None:
    with pytest.raises(ParseError) as caught:
        pdf.probe(FILES / "truncated.pdf")
    assert caught.value.code == "corrupt"
    whole = (FILES / "agreement.pdf").read_bytes()
    path = tmp_path / "cut.pdf"
    for keep in range(1, 10):
        path.write_bytes(whole[: len(whole) * keep // 10])
        with pytest.raises(ParseError) as caught:
            pdf.probe(path)
        assert caught.value.code == "corrupt"


def test_junk_before_the_header_is_no_obstacle() -> None:
    assert "Andorran law" in parsed("junk_before.pdf")[0].text


def test_form_values_are_text_with_a_box_and_comments_are_not() -> None:
    (page,) = parsed("form.pdf")
    fields = [element for element in page.elements if element.kind == "form_field"]
    assert [page.text[element.start : element.end] for element in fields] == ["Maria Puig"]
    assert fields[0].meta["name"] == "tenant"
    assert fields[0].box == pytest.approx((200, 792 - 735, 400, 792 - 715), abs=1)
    notes = [element for element in page.elements if element.kind == "annotation"]
    assert [note.meta["text"] for note in notes] == ["Check the name"]
    assert "Check the name" not in page.text


def test_probe_reads_the_metadata() -> None:
    found = pdf.probe(FILES / "agreement.pdf")
    assert (found["page_count"], found["title"], found["author"]) == (3, "Service Agreement", "Legal")
    assert found["created"] == "2024-03-01T12:00:00+01:00"


@pytest.mark.parametrize(
    ("value", "iso"),
    [
        ("D:20240301120000Z", "2024-03-01T12:00:00+00:00"),
        ("D:2024", "2024-01-01T00:00:00+00:00"),
        ("D:20240301120000-05'30'", "2024-03-01T12:00:00-05:30"),
        ("D:20241399", None),
        ("yesterday", None),
    ],
)
def test_pdf_dates(value: str, iso: str | None) -> None:
    assert pdf.pdf_date(value) == iso


def test_a_range_gives_only_its_pages() -> None:
    pages = pdf_structure.parse(FILES / "agreement.pdf", "pdf", 2, 2, None)
    assert [page.number for page in pages] == [2]
    assert pages[0].parser == "liteparse"
