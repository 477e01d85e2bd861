"""Coverage: the sums add up, reasons are named, the sentence reads well."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.answering.coverage import Coverage, DocumentPages, coverage, not_found


def test_counts_and_says_what_was_read_searched_and_skipped() -> None:
    documents = [
        DocumentPages("a", "a.pdf", "indexed", 200),
        DocumentPages("b", "b.pdf", "partial", 120, gaps={"needs_ocr": 9, "failed": 1}),
        DocumentPages("c", "c.pdf", "needs_password", None),
        DocumentPages("d", "d.pdf", "failed", 12, code="corrupt"),
        DocumentPages("e", "e.pdf", "parsing", 8),
    ]
    found = coverage(documents, {"a": {1, 2, 7}, "b": {5}}, passages_read=6)
    assert (found.documents_total, found.documents_searched, found.documents_read) == (5, 2, 2)
    assert (found.pages_total, found.pages_searched, found.pages_read, found.pages_searched_only) == (340, 310, 4, 306)
    assert [(s.document, s.pages, s.reason, s.whole_document) for s in found.skipped] == [
        ("b.pdf", 1, "failed", False),
        ("b.pdf", 9, "needs_ocr", False),
        ("c.pdf", None, "needs_password", True),
        ("d.pdf", 12, "failed", True),
        ("e.pdf", 8, "in_progress", True),
    ]
    assert found.sentence == (
        "Read 6 passages on 4 pages of 2 documents; searched 2 documents, 310 pages; 3 documents were not searched: "
        "1 failed, 1 is still being indexed, 1 needs a password; 10 pages of 1 document were not searched: "
        "1 failed, 9 need text recognition."
    )
    assert not_found(found).startswith("Not found in 2 documents, 310 pages searched; 3 documents were not searched")


def test_the_plain_case_is_plain() -> None:
    found = coverage([DocumentPages("a", "a.pdf", "indexed", 1)], {"a": {1}}, passages_read=1)
    assert found.sentence == "Read 1 passage on 1 page of 1 document; searched 1 document, 1 page."
    assert found.skipped == ()


def test_nothing_found_and_nothing_searched() -> None:
    none_read = coverage([DocumentPages("a", "a.pdf", "indexed", 3)], {}, passages_read=0)
    assert none_read.sentence == "Read no passage; searched 1 document, 3 pages."
    assert not_found(none_read) == "Not found in 1 document, 3 pages searched."
    locked = coverage([DocumentPages("a", "a.pdf", "needs_password", None)], {}, passages_read=0)
    assert not_found(locked) == "Nothing could be searched; 1 document was not searched: 1 needs a password."


@pytest.mark.parametrize(
    ("read", "message"),
    [
        ({"a": {11}}, "more pages"),
        ({"a": {0}}, "more pages"),
        ({"b": {1}}, "more pages"),
        ({"x": {1}}, "not in scope"),
    ],
)
def test_refuses_pages_that_cannot_have_been_read(read: dict[str, set[int]], message: str) -> None:
    documents = [DocumentPages("a", "a", "indexed", 10), DocumentPages("b", "b", "failed", 5)]
    with pytest.raises(ValueError, match=message):
        coverage(documents, read, passages_read=1)


def test_refuses_sums_that_do_not_add_up() -> None:
    with pytest.raises(ValueError, match="add up"):
        Coverage(1, 1, 1, 10, 9, 8, 1, 1, (), "")
    with pytest.raises(ValueError, match="listed twice"):
        coverage([DocumentPages("a", "a", "indexed", 1)] * 2, {}, passages_read=0)


STATES = st.sampled_from(
    ["indexed", "partial", "failed", "needs_password", "needs_ocr", "cancelled", "parsing", "received"]
)


@given(st.lists(st.tuples(STATES, st.integers(0, 50), st.integers(0, 10)), max_size=12))
def test_always_adds_up(rows: list[tuple[str, int, int]]) -> None:
    documents = [
        DocumentPages(
            str(i), f"{i}.pdf", state, pages, gaps={"failed": min(gap, pages)} if state == "partial" else None
        )
        for i, (state, pages, gap) in enumerate(rows)
    ]
    found = coverage(documents, {}, passages_read=0)
    skipped = sum(entry.pages or 0 for entry in found.skipped)
    assert found.pages_total == sum(pages for _, pages, _ in rows) == found.pages_searched + skipped
    assert found.documents_total == found.documents_searched + sum(entry.whole_document for entry in found.skipped)
