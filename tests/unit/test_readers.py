"""The readers' own parts: charsets, the offline language model, the fallbacks where a library loses words."""

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ingestion import charsets, elements, markup, sheets, text
from ingestion.canonical import ParsedPage
from ingestion.errors import ParseError
from ingestion.placement import Squeezed

FILES = Path(__file__).parents[1] / "data" / "files"


@pytest.mark.parametrize(
    ("data", "html", "words", "charset"),
    [
        ("é€".encode("utf-8-sig"), False, "é€", "utf-8"),
        ("é€".encode("utf-16"), False, "é€", "utf-16"),
        ("words é".encode("utf-16-le"), False, "words é", "utf-16-le"),
        ("words é".encode("utf-16-be"), False, "words é", "utf-16-be"),
        ("é€".encode("utf-32"), False, "é€", "utf-32"),
        ("Preu: 5 € – café “q”".encode("cp1252"), False, "Preu: 5 € – café “q”", "windows-1252"),
        (b"a\x81b", False, "a\x81b", "windows-1252"),
        ('<meta charset="iso-8859-1">€'.encode("cp1252"), True, '<meta charset="iso-8859-1">€', "cp1252"),
        ('<meta charset="utf-16">é'.encode(), True, '<meta charset="utf-16">é', "utf-8"),
        ('<meta charset="nonsense">é'.encode(), True, '<meta charset="nonsense">é', "utf-8"),
        ('<meta charset="shift_jis">日本'.encode("shift_jis"), True, '<meta charset="shift_jis">日本', "shift_jis"),
        ('<meta charset="hex">é'.encode(), True, '<meta charset="hex">é', "utf-8"),
    ],
)
def test_charsets_by_rule(data: bytes, html: bool, words: str, charset: str) -> None:
    assert charsets.decode(data, html=html) == (words, charset)


def test_long_text_in_another_script_is_told_by_statistics() -> None:
    words = "これは日本語の文章です。契約の期間は五年間とする。" * 20
    assert charsets.decode(words.encode("shift_jis"))[0] == words


def test_form_feeds_are_pages(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\f\ftwo\f")
    pages = text.parse(path, "txt", 1, 9, None)
    assert [(page.number, page.text, page.state) for page in pages] == [
        (1, "one", "ok"),
        (2, "", "blank"),
        (3, "two", "ok"),
    ]
    assert text.probe(path, "txt", None)["page_count"] == 3


def test_nothing_is_ever_downloaded() -> None:
    """The library's own fetch raises; the readers never reach it, with or without a packaged model."""
    script = """
import sys
from pathlib import Path
from ingestion import elements, mail, markup, office
office.prepare(Path("/nowhere")); markup.prepare(Path("/nowhere")); mail.prepare(Path("/nowhere"))
import unstructured.nlp.tokenize as tokenize
def refuse(*arguments): raise AssertionError("it wanted the network")
tokenize._download_with_timeout = tokenize._install_spacy_model = refuse
for module, name, kind in ((office, "report.docx", "docx"), (markup, "prices.html", "html"),
                           (markup, "handbook.md", "md"), (mail, "letter.eml", "eml")):
    (page,) = module.parse(Path(sys.argv[1]) / name, kind, 1, 1, None)
    assert page.parser == "unstructured", name
assert "spacy.language" not in sys.modules
assert tokenize.sent_tokenize("One. Two.") == ["One.", "Two."]
assert "spacy.language" in sys.modules
"""
    root = Path(__file__).parents[2]
    environment = {"UNSTRUCTURED_DISABLE_NOTICE": "1", "DO_NOT_TRACK": "true", "SCARF_NO_ANALYTICS": "true"}
    done = subprocess.run(
        [sys.executable, "-c", script, str(FILES)],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def builder_page(words: str) -> list[ParsedPage]:
    builder = elements.PageBuilder()
    builder.add("paragraph", words)
    return [builder.page(1, None, "x")]


def test_a_reader_that_loses_words_or_raises_is_replaced() -> None:
    def raising() -> list[ParsedPage]:
        raise KeyError("words")

    def locked() -> list[ParsedPage]:
        raise ParseError("needs_key", "Locked.")

    whole = "one two three four"
    assert (
        elements.first_that_keeps(4, raising, lambda: builder_page("one"), lambda: builder_page(whole))[0].text == whole
    )
    assert elements.first_that_keeps(4, lambda: builder_page(whole), raising)[0].text == whole
    with pytest.raises(ParseError):
        elements.first_that_keeps(4, locked, lambda: builder_page(whole))


def test_html_that_the_library_loses_is_read_by_our_own_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    partition = pytest.importorskip("unstructured.partition.html")
    monkeypatch.setattr(partition, "partition_html", lambda **_: [])
    source = (
        "<h2>Fees</h2><p>The fee is <b>TWO</b> euros.<br>Due now.</p><ul><li>One</li></ul><table><tr><td>A<td>B</table>"
    )
    (page,) = markup.html_pages(source)
    assert page.parser == "lxml"
    assert page.text == "Fees\n\nThe fee is TWO euros.\n\nDue now.\n\nOne\n\nA | B |"
    assert [(element.kind, element.level) for element in page.elements][:2] == [("heading", 2), ("paragraph", None)]


def test_deep_nesting_is_read_or_refused_but_never_lost() -> None:
    assert "deep" in markup.html_pages("<div>" * 1500 + "deep" + "</div>" * 1500)[0].text
    with pytest.raises(ParseError) as caught:
        markup.html_pages("<div>" * 3000 + "deep" + "</div>" * 3000)
    assert (caught.value.code, caught.value.facts) == ("resource_limit", {"resource": "depth"})


def test_marks_leave_the_text_and_give_their_place() -> None:
    builder = elements.PageBuilder()
    builder.add("paragraph", f"  a{chr(elements.MARK_BASE)}b\x00c ")
    builder.add("paragraph", chr(elements.MARK_BASE + 1))
    builder.add("list_item", "d", 1)
    builder.add("list_item", f"e{chr(elements.MARK_BASE + 2)}", 1)
    assert builder.text == "abc\n\nd\ne"
    assert builder.marks == [(1, 0), (3, 1), (8, 2)]


def test_words_are_found_whatever_the_layout() -> None:
    squeezed = Squeezed("See the **ﬁnal** [price](https://example.com/long) of\n5,120 euros. Straße.")
    assert squeezed.locate("final", 0) == (10, 14)
    span = squeezed.locate("See the final price of 5,120 euros.", 0)
    assert span == (0, 65)
    assert squeezed.locate("strasse", 0) == (67, 73)
    assert squeezed.locate("not there", 0) is None


@pytest.mark.parametrize(
    ("value", "number_format", "shown"),
    [
        (0.25, "0%", "25%"),
        (0.1234, "0.00%", "12.34%"),
        (5120, "#,##0", "5,120"),
        (5120.5, '#,##0.00 "EUR"', "5,120.50"),
        (3.0, "General", "3"),
        (0.1 + 0.2, "General", "0.3"),
        (2.5, "0.00", "2.50"),
        (True, "General", "TRUE"),
        (None, "General", ""),
        ("a\nb", "General", "a b"),
        (-5120, "#,##0;[Red]-#,##0", "-5,120"),
    ],
)
def test_numbers_as_the_sheet_shows_them(value: object, number_format: str, shown: str) -> None:
    assert sheets._shown(value, number_format) == shown


def test_strict_packages_are_read(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(FILES / "budget.xlsx") as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            part = source.read(name)
            part = part.replace(
                b"http://schemas.openxmlformats.org/spreadsheetml/2006/main",
                b"http://purl.oclc.org/ooxml/spreadsheetml/main",
            ).replace(
                b"http://schemas.openxmlformats.org/officeDocument/2006/", b"http://purl.oclc.org/ooxml/officeDocument/"
            )
            target.writestr(name, part)
    path = tmp_path / "strict.xlsx"
    path.write_bytes(out.getvalue())
    from ingestion import office

    assert office.probe(path, "xlsx", None)["page_count"] == 2
    assert "36,000.50" in office.parse(path, "xlsx", 1, 1, None)[0].text
