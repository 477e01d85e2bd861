"""Citation marks in a streamed answer: any cut of the stream gives the same text and marks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answering.marks import MAX_MARK_CHARS, DroppedMark, DropReason, Mark, MarkParser, TextDelta, claims, parse


def test_reads_text_and_marks() -> None:
    text, marks, dropped = parse('The cap is 5 EUR. [1: "the cap is 5 EUR"] Done [2].', {1, 2})
    assert text == "The cap is 5 EUR.  Done ."
    assert marks == [Mark(1, "the cap is 5 EUR", 18), Mark(2, None, 24)]
    assert dropped == []


@pytest.mark.parametrize(
    ("mark", "expected"),
    [
        ('[1: "a b"]', [(1, "a b")]),
        ("[1: “a b”]", [(1, "a b")]),
        ("[1: «a b»]", [(1, "a b")]),
        ('[1:"a b" ]', [(1, "a b")]),
        ('[source 1: "a b"]', [(1, "a b")]),
        ('[1: "a b"; 2: "c"]', [(1, "a b"), (2, "c")]),
        ('[1: "the "Supplier" pays"]', [(1, 'the "Supplier" pays')]),
        ('[1: "see [sic] there"]', [(1, "see [sic] there")]),
        ('[1: "line\nbreak"]', [(1, "line\nbreak")]),
        ("[1; 2]", [(1, None), (2, None)]),
    ],
)
def test_forms_that_models_write(mark: str, expected: list[tuple[int, str | None]]) -> None:
    text, marks, dropped = parse(f"x {mark} y", {1, 2})
    assert text == "x  y"
    assert [(m.source, m.quote) for m in marks] == expected
    assert dropped == []


@pytest.mark.parametrize("text", ["see [here]", "a[i] = b", "[", "[ 1 apple ]", "[1 apple]", "[12: no quote]"])
def test_brackets_that_are_no_marks_stay_text(text: str) -> None:
    assert parse(text, {1, 12}) == (text, [], [])


@pytest.mark.parametrize(
    ("answer", "reason", "rest"),
    [
        ('x [9: "a"] y', DropReason.UNKNOWN_SOURCE, "x  y"),
        ("x [9] y", DropReason.UNKNOWN_SOURCE, "x  y"),
        ('x [1: "cut off', DropReason.UNCLOSED, "x "),
        ('x [1: "never closed\n\nNext paragraph', DropReason.UNCLOSED, "x \n\nNext paragraph"),
        ('x [1: "…"] y', DropReason.EMPTY_QUOTE, "x  y"),
    ],
)
def test_bad_marks_are_dropped_and_reported(answer: str, reason: DropReason, rest: str) -> None:
    text, marks, dropped = parse(answer, {1})
    assert (text, marks) == (rest, [])
    assert [d.reason for d in dropped] == [reason]


def test_an_endless_mark_is_given_up() -> None:
    parser = MarkParser({1})
    events = parser.feed('[1: "' + "x" * MAX_MARK_CHARS)
    assert events == [DroppedMark(DropReason.UNCLOSED, 0, 1)]
    assert parser.feed(" and on") == [TextDelta(" and on")]


ANSWER = (
    'The cap "is" 5 [1: "the "cap" is [sic] EUR"]. Next [see] one [2]; and [9: "x"] '
    '[2: "a"; 1: "c"] [source 2, “q”] [1: "cut'
)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=200))
def test_the_cut_of_the_stream_changes_nothing(sizes: list[int]) -> None:
    parser, events, at = MarkParser({1, 2}), [], 0
    while at < len(ANSWER):
        size = sizes[at % len(sizes)]
        events += parser.feed(ANSWER[at : at + size])
        at += size
    events += parser.close()
    text = "".join(e.text for e in events if isinstance(e, TextDelta))
    marks = [e for e in events if isinstance(e, Mark)]
    assert (text, marks, [e for e in events if isinstance(e, DroppedMark)]) == parse(ANSWER, {1, 2})


def test_text_before_a_mark_is_not_held_back() -> None:
    parser = MarkParser({1})
    assert parser.feed("The cap ") == [TextDelta("The cap ")]
    assert parser.feed("is 5 [1: ") == [TextDelta("is 5 ")]
    assert parser.feed('"five') == []
    assert parser.feed('"]!') == [Mark(1, "five", 13), TextDelta("!")]


@given(st.text(alphabet='[]12:;"x \n“”', max_size=80), st.integers(1, 5))
def test_any_text_is_read_without_failing_and_as_one_piece(answer: str, size: int) -> None:
    parser, events = MarkParser({1}), []
    for at in range(0, len(answer), size):
        events += parser.feed(answer[at : at + size])
    events += parser.close()
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == parse(answer, {1})[0]


def test_marks_belong_to_the_sentence_before_them() -> None:
    text, marks, _ = parse('The cap is 5. [1: "a"] It was 4 [2: "b"] before. Nobody knows why.', {1, 2})
    got = [(text[c.start : c.end], [m.quote for m in c.marks]) for c in claims(text, marks)]
    assert got == [("The cap is 5.", ["a"]), ("It was 4  before.", ["b"]), ("Nobody knows why.", [])]
