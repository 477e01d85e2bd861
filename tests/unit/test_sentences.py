"""Sentences: exact offsets, abbreviations, wrapped lines, headings, bounded length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answering.sentences import MAX_CHARS, Kind, sentences, split


def texts(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@pytest.mark.parametrize(
    "text",
    [
        "The cap under Art. 5 is EUR 1,500,000.50 (see No. 3).",
        "Mr. J. P. Smith signed for Acme Inc. and left.",
        "Either party may give notice, e.g. by e-mail.",
        "La sociedad Ibérica, S.L. podrá resolver el contrato.",
        "El pago se hará conforme al art. 12.3 de la ley, p. ej. por transferencia.",
        "D. Juan y Dña. Ana viven en EE. UU. desde 2010.",
        "L'Ajuntament, segons l'art. 4 del Reglament, ho pot autoritzar.",
        "El Sr. Puig i la Sra. Ferrer van signar l'acord núm. 7.",
        "The price rose by 1.5 per cent to $3.20.",
        "This applies in the U.S. only.",
        "1. The Commission meets once a month.",
    ],
)
def test_one_sentence_stays_one(text: str) -> None:
    assert texts(text) == [text]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It ends. It begins.", ["It ends.", "It begins."]),
        ("¿Qué pasa? ¡Nada! Sigue.", ["¿Qué pasa?", "¡Nada!", "Sigue."]),
        ("He said “no.” Then he left.", ["He said “no.”", "Then he left."]),
        ("Signed by Acme Inc. The parties agree.", ["Signed by Acme Inc.", "The parties agree."]),
        ("El arrendador es Valdés, S.A. El local es suyo.", ["El arrendador es Valdés, S.A.", "El local es suyo."]),
        ("Va costar 5 euros. En queden 3.", ["Va costar 5 euros.", "En queden 3."]),
    ],
)
def test_sentences_end(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


def test_a_line_break_inside_a_sentence_ends_nothing() -> None:
    text = (
        "The total liability of each party in a contract year\n"
        "shall not exceed EUR 750,000. Neither party is liable\nfor profit."
    )
    assert texts(text) == [
        "The total liability of each party in a contract year\nshall not exceed EUR 750,000.",
        "Neither party is liable\nfor profit.",
    ]


@pytest.mark.parametrize("gap", ["\n\n", "\f", "\n \n", "\n\f\n"])
def test_blank_lines_and_page_breaks_end_a_sentence(gap: str) -> None:
    assert texts(f"no full stop here{gap}and there") == ["no full stop here", "and there"]


def test_headings_and_list_entries_stand_alone() -> None:
    text = (
        "12. Limitation of liability\nThe total liability shall not exceed the fees that were paid\n"
        "in the year before. The following is excluded:\n(a) fraud; and\n(b) death.\n\nNOTICE\nNotice is in writing."
    )
    kinds = [(piece.kind, text[piece.start : piece.end]) for piece in split(text)]
    assert (Kind.HEADING, "12. Limitation of liability") in kinds
    assert (Kind.ITEM, "(a) fraud; and") in kinds
    assert (Kind.ITEM, "(b) death.") in kinds
    assert (Kind.HEADING, "NOTICE") in kinds
    assert (Kind.SENTENCE, "Notice is in writing.") in kinds


def test_a_heading_that_shares_the_paragraph_is_told() -> None:
    text = "2.1 Notice. Either party may terminate by notice."
    assert [(p.kind, text[p.start : p.end]) for p in split(text)] == [
        (Kind.HEADING, "2.1 Notice."),
        (Kind.SENTENCE, "Either party may terminate by notice."),
    ]


def test_table_rows_stand_alone() -> None:
    assert texts("Year\tSales\n2023\t5,120\n2024\t6,300") == ["Year\tSales", "2023\t5,120", "2024\t6,300"]


def test_long_sentences_are_cut_at_clause_marks() -> None:
    text = "The supplier shall deliver the goods, " * 60 + "and that is all."
    pieces = texts(text)
    assert all(len(piece) <= MAX_CHARS for piece in pieces)
    assert all(piece.endswith(",") for piece in pieces[:-1])
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")


def test_a_word_without_end_is_cut_hard() -> None:
    assert [len(piece) for piece in texts("x" * 1500)] == [600, 600, 300]


@given(st.text(alphabet=st.sampled_from("aB1 .,;:!?\n\f\t-()“”'¿ñç\u00a0"), max_size=400))
def test_nothing_is_lost_and_nothing_overlaps(text: str) -> None:
    spans = sentences(text)
    inside = bytearray(len(text))
    last = 0
    for start, end in spans:
        assert last <= start < end
        assert end - start <= MAX_CHARS
        assert text[start:end] == text[start:end].strip()
        inside[start:end] = b"\x01" * (end - start)
        last = end
    assert all(inside[at] for at, char in enumerate(text) if char.isalnum())
