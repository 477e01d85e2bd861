"""Quotes: the rule of what counts as verbatim, exact offsets, pages and boxes."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answering.citations import Levelled, PageText, Span, find_all, find_quote, locate, place, verify
from ingestion.canonical import Line

TEXT = (
    "The fee is non-\nrefundable and the termi-\nnation “notice” is 5,120.50 EUR, i.e.\nlong-\nterm.\f"
    "Page 2: −5% of 10² m² and 1 500 000 units; pre- and post-sale; 10–20 days; ﬁle cafe\u0301 x\u00adyz agreement¹ "
    "ends, "
    "tel. 555-\n1234, 5½ days, ²5 apples, a 5' pole and a 5\" pole"
)


def found(quote: str, text: str = TEXT) -> list[str]:
    return [text[span.start : span.end] for span in find_all(text, quote)]


@pytest.mark.parametrize(
    ("quote", "stored"),
    [
        ("non-refundable", "non-\nrefundable"),
        ("nonrefundable", "non-\nrefundable"),
        ("termination 'notice' is", "termi-\nnation “notice” is"),
        ("termi-\nnation", "termi-\nnation"),
        ("termi\u00ad\nnation", "termi-\nnation"),
        ("5,120.50 EUR", "5,120.50 EUR"),
        ("long-term. Page 2", "long-\nterm.\fPage 2"),
        ("−5% of", "−5% of"),
        ("10² m²", "10² m²"),
        ("m2 and", "m² and"),
        ("1 500 000 units", "1 500 000 units"),
        ("pre- and", "pre- and"),
        ("10–20 days", "10–20 days"),
        ("file café", "ﬁle cafe\u0301"),
        ("xyz\nagreement", "x\u00adyz agreement"),
        ("agreement", "agreement"),
        ("tel. 555-1234", "tel. 555-\n1234"),
        ("a 5' pole", "a 5' pole"),
    ],
)
def test_levels_what_the_rule_levels(quote: str, stored: str) -> None:
    assert found(quote) == [stored]


@pytest.mark.parametrize(
    "quote",
    [
        "Termination",  # case
        "5,120.51 EUR",  # digits
        "5.120,50 EUR",  # punctuation inside numbers
        "5120.50 EUR",
        "long term",  # a hyphen is not a space
        "pre-and",
        "refundable",  # the word is non-refundable
        "nation",  # the word is termination
        "5,120",  # a part of a number
        "120.50 EUR",
        "5% of",  # minus five
        "102 m",  # ten to the power of two
        "51/2 days",
        "25 apples",
        "1 500",  # a part of 1 500 000
        "20 days",  # a part of a range
        "tel. 5551234",  # hyphens inside numbers are not levelled
        'a 5" pole and',  # feet are not inches
        "",
        "…",
    ],
)
def test_levels_nothing_else(quote: str) -> None:
    assert found(quote) == []


def test_feet_are_not_inches() -> None:
    assert found("a 5' pole", 'a 5" pole') == []


def test_all_places_and_the_nearest() -> None:
    text = "the cap applies. " * 3
    places = find_all(text, "the cap applies")
    assert [span.start for span in places] == [0, 17, 34]
    assert find_quote(text, "the cap applies") == places[0]
    assert find_quote(text, "the cap applies", near=Span(30, 51)) == places[2]
    assert find_quote(text, "the cap applies", near=Span(16, 34)) == places[1]
    assert find_quote(text, "the cup applies") is None


WORDS = st.lists(
    st.sampled_from(
        ["shall", "not", "exceed", "EUR", "750,000", "“cap”", "year-end", "l'import", "notificació", "12.3(b)", "any"]
    ),
    min_size=8,
    max_size=30,
)


@given(WORDS, st.data())
def test_a_quote_survives_line_breaks_hyphens_and_quote_marks(words: list[str], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(words) - 5))
    end = data.draw(st.integers(begin + 4, len(words)))
    stored: list[str] = []
    for word in words:
        if word.isalpha() and len(word) > 5 and data.draw(st.booleans()):
            cut = data.draw(st.integers(2, len(word) - 2))
            word = word[:cut] + data.draw(st.sampled_from(["-\n", "\u00ad", "\u00ad\n", "-\f"])) + word[cut:]
        stored.append(word)
    gaps = [data.draw(st.sampled_from([" ", "\n", "  ", " \n", "\u00a0", "\f"])) for _ in stored]
    text, spans = "", []
    for word, gap in zip(stored, gaps, strict=True):
        spans.append((len(text), len(text) + len(word)))
        text += word + gap
    quote = data.draw(st.sampled_from([" ", "\n"])).join(words[begin:end])
    quote = quote.replace("“", data.draw(st.sampled_from(['"', "«", "'"]))).replace(
        "'", data.draw(st.sampled_from("'’"))
    )
    expected = (spans[begin][0], spans[end - 1][1])
    # A quote mark at the edge is part of the words.
    assert expected in [(span.start, span.end) for span in find_all(text, quote)]


@given(WORDS, st.data())
def test_one_changed_letter_or_digit_is_not_found(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    places = [at for at, char in enumerate(text) if char.isalnum()]
    at = data.draw(st.sampled_from(places))
    swap = {"0": "9", "1": "7"}.get(text[at], "x" if text[at] != "x" else "y")
    quote = text[:at] + swap + text[at + 1 :]
    assert quote == text or find_all(text, quote) == []


@given(st.text(max_size=60), st.text(max_size=12))
def test_never_fails_and_what_is_found_is_equal_to_the_quote(text: str, quote: str) -> None:
    for span in find_all(text, quote):
        assert 0 <= span.start < span.end <= len(text)
        assert Levelled(text[span.start : span.end]).chars == Levelled(quote).chars


def test_is_linear_enough() -> None:
    page = "The total liability of Northwind S.A. shall not exceed EUR 1,500,000.50 (see No. 3).\n" * 3000
    started = time.perf_counter()
    levelled = Levelled(page)
    assert find_quote(levelled, "no such words in here at all") is None
    assert len(find_all(levelled, "shall not exceed EUR 1,500,000.50")) == 3000
    assert time.perf_counter() - started < 10


PAGE_ONE, PAGE_TWO = "First line of page one.\nThe quote begins", "here and ends.\nLast line."
PAGES = (
    PageText(7, 0, len(PAGE_ONE), (Line(0, 23, (50, 50, 300, 62)), Line(24, 40, (50, 64, 200, 76))), "vii"),
    PageText(
        8, len(PAGE_ONE) + 1, len(PAGE_ONE) + 1 + len(PAGE_TWO), (Line(0, 14, (50, 50, 150, 62)), Line(15, 25, None))
    ),
)


def test_places_a_quote_over_a_page_break() -> None:
    text = f"{PAGE_ONE}\f{PAGE_TWO}"
    quote = verify("The quote begins here and ends.", text, PAGES)
    assert quote.verified
    assert quote.text == "The quote begins\fhere and ends."
    assert text[quote.char_start : quote.char_end] == quote.text
    assert (quote.page, quote.page_label, quote.boxes) == (7, "vii", ((50, 64, 200, 76),))
    assert [(span.page, span.start, span.end, span.boxes) for span in quote.spans] == [
        (7, 24, 40, ((50, 64, 200, 76),)),
        (8, 0, 14, ((50, 50, 150, 62),)),
    ]


def test_offsets_may_start_inside_the_document() -> None:
    start = len(PAGE_ONE) + 1
    quote = verify("and ends", PAGE_TWO, PAGES[1:], offset=start, near=Span(start, start + 10))
    assert (quote.char_start, quote.char_end, quote.page) == (start + 5, start + 13, 8)
    assert quote.spans[0].start == 5


def test_what_is_not_found_is_not_verified() -> None:
    quote = verify("The quote begins elsewhere", f"{PAGE_ONE}\f{PAGE_TWO}", PAGES)
    assert (quote.verified, quote.page, quote.boxes, quote.char_start) == (False, None, (), None)
    assert quote.text == "The quote begins elsewhere"


def test_a_span_outside_the_pages_is_not_verified() -> None:
    assert not place(f"{PAGE_ONE}\f{PAGE_TWO}", PAGES[1:], 0, 10).verified


def test_boxes_are_those_of_the_lines_that_are_touched() -> None:
    lines = (Line(0, 10, (0, 0, 1, 1)), Line(11, 20, (0, 2, 1, 3)), Line(21, 30, None))
    assert locate(lines, 9, 11) == ((0, 0, 1, 1),)
    assert locate(lines, 9, 12) == ((0, 0, 1, 1), (0, 2, 1, 3))
    assert locate(lines, 22, 30) == ()


def test_a_quote_mark_after_a_number_and_a_space_opens_a_quote() -> None:
    assert find_quote("shall shall 750,000 “cap” shall", "750,000 'cap' shall") is not None
    assert find_quote("a beam of 5' length", 'a beam of 5" length') is None, "feet are not inches"


def test_two_numbers_side_by_side_are_two_numbers() -> None:
    row = "shall 750,000 750,000 shall"
    assert find_quote(row, "750,000 shall") == Span(14, 27)
    assert find_quote(row, "shall 750,000") == Span(0, 13)
    assert find_quote("in all 1 500 005 euros", "500 005 euros") is None, "a part of one number"
