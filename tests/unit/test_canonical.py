"""Canonical text: cleaning, page arithmetic, and the JSON forms."""

import json

from hypothesis import given
from hypothesis import strategies as st

from ingestion.canonical import CanonicalText, Element, Line, ParsedPage, clean, union

PAGES = st.lists(st.text(alphabet="ab c\n", max_size=12), min_size=1, max_size=8)


def test_clean_levels_line_ends_and_spaces_and_drops_what_is_no_text() -> None:
    assert clean("a\r\nb\rc\x0bd\u2028e\x0cf") == "a\nb\nc\nd\ne\nf"
    assert clean("5\xa0120\u2009€") == "5 120 €"
    assert clean("a\x00b\ud800c\ufeffd\x1fe\x9ff") == "abcdef"
    assert clean("ﬁne\tcafé") == "ﬁne\tcafé"


@given(st.text())
def test_clean_is_stable_and_can_be_stored(text: str) -> None:
    cleaned = clean(text)
    assert clean(cleaned) == cleaned
    assert "\x00" not in cleaned
    assert "\f" not in cleaned
    cleaned.encode("utf-8")


@given(PAGES)
def test_every_offset_knows_its_page(texts: list[str]) -> None:
    canonical = CanonicalText.of(texts)
    assert len(canonical.page_starts) == len(texts)
    for number, text in enumerate(texts, start=1):
        assert canonical.page_text(number) == text
        for offset in range(len(text)):
            at = canonical.page_starts[number - 1] + offset
            assert canonical.page_of(at) == number
            assert canonical.local(at) == (number, offset)


def test_a_span_over_a_break_has_both_pages() -> None:
    canonical = CanonicalText.of(["one", "", "three"])
    assert canonical.page_range(1, 7) == (1, 3)
    assert canonical.page_range(0, 3) == (1, 1)
    assert canonical.page_range(5, 10) == (3, 3)
    assert CanonicalText.from_json(json.loads(json.dumps(canonical.to_json()))) == canonical


def test_pages_survive_json() -> None:
    page = ParsedPage(
        number=3,
        label="iv",
        width=612.0,
        height=792.0,
        rotation=90,
        text="A line",
        lines=(Line(0, 6, (1.0, 2.0, 3.0, 4.0)), Line(0, 0, None)),
        elements=(Element("heading", 0, 6, (1.0, 2.0, 3.0, 4.0), 2, {"a": [1, None]}), Element("revision", 2, 2)),
        state="ok",
        code=None,
        message=None,
        parser="liteparse",
    )
    assert ParsedPage.from_json(json.loads(json.dumps(page.to_json()))) == page


def test_union() -> None:
    assert union([]) is None
    assert union([(1, 5, 2, 6), (0, 7, 1, 9)]) == (0, 5, 2, 9)
