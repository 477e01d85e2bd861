"""Chunks: offsets are exact, no word is lost, structure decides where a chunk begins and ends."""

import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingestion import chunking
from ingestion.canonical import CanonicalText, Element, ParsedPage
from ingestion.chunking import Chunk, chunk, exact_spans
from ingestion.pipeline import canonical_of, embedding_text, ranges

WORDS = "The lessee pays the rent of EUR 1,200.50 within seven days. Art. 5 and No. 3 apply; see (b). "
PAGE_TEXT = st.text(alphabet=st.sampled_from("ab .,;!?。é\n\t中1"), max_size=400)


def page(number: int, text: str, elements: Sequence[Element] = (), **fields: Any) -> ParsedPage:
    values: dict[str, Any] = {"label": None, "width": 612.0, "height": 792.0, "rotation": 0, "lines": (), "state": "ok"}
    return ParsedPage(number=number, text=text, elements=tuple(elements), **{**values, **fields})


def document(*texts: str) -> tuple[CanonicalText, list[ParsedPage]]:
    pages = [page(number, text) for number, text in enumerate(texts, start=1)]
    return canonical_of(pages), pages


def build(*blocks: tuple[str, str, int | None]) -> tuple[CanonicalText, list[ParsedPage]]:
    """One page out of (kind, text, level)."""
    text = ""
    elements = []
    for kind, words, level in blocks:
        text += "\n\n" if text else ""
        elements.append(Element(kind, len(text), len(text) + len(words), None, level))
        text += words
    pages = [page(1, text, elements)]
    return canonical_of(pages), pages


def check(canonical: CanonicalText, chunks: list[Chunk]) -> None:
    """The invariant of every chunk, and of all together."""
    position = 0
    for number, item in enumerate(chunks):
        assert item.ordinal == number
        assert canonical.text[item.start : item.end] == item.text
        assert item.text == item.text.strip()
        assert item.text
        assert not canonical.text[position : item.start].strip(), "words between two chunks"
        assert item.start >= position, "chunks overlap"
        assert (item.page_from, item.page_to) == canonical.page_range(item.start, item.end)
        position = item.end
    assert not canonical.text[position:].strip(), "words after the last chunk"


@st.composite
def documents(draw: st.DrawFn) -> tuple[CanonicalText, list[ParsedPage]]:
    pages = []
    for number, text in enumerate(draw(st.lists(PAGE_TEXT, min_size=1, max_size=4)), start=1):
        cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=8)))
        kinds = st.sampled_from(["paragraph", "heading", "table", "list_item", "footer", "revision"])
        elements = [
            Element(draw(kinds), start, end, None, draw(st.one_of(st.none(), st.integers(1, 6))))
            for start, end in zip(cuts[::2], cuts[1::2], strict=False)
        ]
        pages.append(page(number, text, elements))
    return canonical_of(pages), pages


@settings(max_examples=300, deadline=None)
@given(documents(), st.integers(50, 200))
def test_offsets_are_exact_and_no_word_is_lost(made: tuple[CanonicalText, list[ParsedPage]], target: int) -> None:
    canonical, pages = made
    check(canonical, chunk(canonical, pages, title="T", target_chars=target, language="en"))


@settings(max_examples=300, deadline=None)
@given(PAGE_TEXT, st.integers(10, 80))
def test_our_own_splitter_is_exact_and_bounded(text: str, target: int) -> None:
    spans = exact_spans(text, 0, len(text), target)
    position = 0
    for start, end in spans:
        assert 0 < end - start <= target
        assert not text[position:start].strip()
        position = end
    assert not text[position:].strip()


def test_a_long_text_is_cut_at_sentences_within_the_target() -> None:
    canonical, pages = document(WORDS * 100)
    chunks = chunk(canonical, pages, title="Lease")
    check(canonical, chunks)
    assert len(chunks) > 5
    assert max(len(item.text) for item in chunks) <= 1.25 * chunking.TARGET_CHARS
    assert sum(item.text.endswith((".", ";")) for item in chunks) >= len(chunks) - 1


def test_the_mandated_splitter_serves_and_is_replaced_when_it_breaks_the_invariant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    canonical, pages = document(WORDS * 60)
    assert chunking._splitter(1400).__class__.__module__.startswith("llama_index")
    for wrong in (["words that are not there"], [], [WORDS * 60], [WORDS.upper()]):
        monkeypatch.setattr(chunking, "_llama_pieces", lambda part, target, wrong=wrong: wrong)
        chunks = chunk(canonical, pages, title="Lease")
        check(canonical, chunks)
        assert max(len(item.text) for item in chunks) <= 1.25 * chunking.TARGET_CHARS


def test_the_same_page_many_times_gives_distinct_places() -> None:
    canonical, pages = document(*[WORDS * 12] * 12)
    chunks = chunk(canonical, pages, title="T")
    check(canonical, chunks)
    assert len({item.start for item in chunks}) == len(chunks)
    assert {item.page_from for item in chunks} == set(range(1, 13))


def test_headings_start_chunks_and_make_the_header() -> None:
    canonical, pages = build(
        ("title", "Service Agreement", 1),
        ("heading", "1. Fees", 2),
        ("paragraph", WORDS * 3, None),
        ("heading", "1.1 Late payment", 3),
        ("paragraph", WORDS * 2, None),
        ("heading", "2. Term", 2),
        ("paragraph", WORDS, None),
    )
    chunks = chunk(canonical, pages, title="contract.pdf")
    check(canonical, chunks)
    assert [item.text.split("\n")[0] for item in chunks] == ["Service Agreement", "1.1 Late payment", "2. Term"]
    assert [item.header for item in chunks] == [
        "contract.pdf > Service Agreement > 1. Fees",
        "contract.pdf > Service Agreement > 1. Fees > 1.1 Late payment",
        "contract.pdf > Service Agreement > 2. Term",
    ]
    assert embedding_text(chunks[2]).startswith("contract.pdf > Service Agreement > 2. Term\n2. Term")


def test_no_table_row_is_cut_and_later_parts_name_the_columns() -> None:
    rows = "\n".join(["Year | Hours | Amount", *(f"{1900 + n} | {n} | {n * 7},200" for n in range(120))])
    canonical, pages = build(("heading", "Hours", 1), ("table", rows, None), ("paragraph", WORDS, None))
    chunks = chunk(canonical, pages, title="T", target_chars=500)
    check(canonical, chunks)
    tables = [item for item in chunks if " | " in item.text]
    assert len(tables) > 3
    whole = set(rows.split("\n")) | {"Hours", ""}
    assert all(line in whole for item in tables for line in item.text.split("\n"))
    assert tables[0].text.startswith("Hours\n\nYear | Hours | Amount")
    assert all(item.header.endswith("| Year | Hours | Amount") for item in tables[1:])


def test_a_sentence_over_a_page_break_stays_whole_and_knows_both_pages() -> None:
    first = "Notice is given in writing. If neither party gives notice, the agreement"
    second = "is renewed for one more year. Then it ends."
    foot = "Page 1"
    at = len(first) + 1
    one = page(1, f"{first}\n{foot}", [Element("paragraph", 0, len(first)), Element("footer", at, at + len(foot))])
    pages = [one, page(2, second, [Element("paragraph", 0, len(second))])]
    canonical = canonical_of(pages)
    chunks = chunk(canonical, pages, title="T", target_chars=150)
    check(canonical, chunks)
    assert len(chunks) == 1
    assert (chunks[0].page_from, chunks[0].page_to) == (1, 2)


def test_a_sheet_name_joins_the_header() -> None:
    sheet = page(1, "A | B", [Element("table", 0, 5)], label="Budget", width=None, height=None)
    assert chunk(canonical_of([sheet]), [sheet], title="plan.xlsx")[0].header == "plan.xlsx > Budget"


def test_languages_by_chunk() -> None:
    english = "The tenant pays the rent within the first seven days of each month. " * 3
    catalan = "L'arrendatari ha de pagar la renda dins dels set primers dies de cada mes. " * 3
    blocks = [("paragraph", english, None), ("heading", "Annex", 1)] * 3 + [
        ("heading", "Annex B", 1),
        ("paragraph", catalan, None),
    ] * 3
    canonical, pages = build(*blocks)
    found = {item.language for item in chunk(canonical, pages, title="T")}
    assert found == {"en", "ca"}
    canonical, pages = build(("heading", "5,120", 1), ("paragraph", "Total: 12", None))
    assert [item.language for item in chunk(canonical, pages, title="T", language="es")] == ["es"]


def test_empty_documents_have_no_chunks() -> None:
    canonical, pages = document("", " \n ")
    assert chunk(canonical, pages, title="T") == []
    with pytest.raises(ValueError, match="at least"):
        chunk(canonical, pages, title="T", target_chars=10)


def test_ranges() -> None:
    assert ranges(0) == []
    assert ranges(50) == [(1, 50)]
    assert ranges(101) == [(1, 50), (51, 100), (101, 101)]
    with pytest.raises(ValueError, match="in order"):
        canonical_of([page(2, "x")])


def test_word_by_word_coverage() -> None:
    canonical, pages = document(WORDS * 40, WORDS * 3, "", "x" * 5000)
    chunks = chunk(canonical, pages, title="T")
    check(canonical, chunks)
    joined = " ".join(item.text for item in chunks)
    assert re.findall(r"\w+", joined.replace(" ", "")) == re.findall(r"\w+", re.sub(r"\s", "", canonical.text))
