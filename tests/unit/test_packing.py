"""Packing: a budget that holds, document order, neighbours joined."""

from hypothesis import given
from hypothesis import strategies as st

from app.answering.packing import Hit, LeftOut, LeftOutReason, pack

LONG = "".join(f"word{i} " for i in range(400))


def hit(name: str, document: str, start: int, end: int, score: float) -> Hit:
    return Hit(name, document, f"{document}-v1", start, end, LONG[start:end], score)


def words(text: str) -> int:
    return len(text.split())


def test_best_first_into_the_budget_and_then_in_document_order() -> None:
    hits = [
        hit("c", "B", 700, 800, 0.5),
        hit("a", "A", 500, 600, 0.9),
        hit("b", "A", 0, 100, 0.7),
        hit("d", "B", 0, 100, 0.6),
    ]
    packed = pack(hits, 10_000, words, overhead_tokens=10)
    assert [s.chunk_ids for s in packed.sources] == [("b",), ("a",), ("d",), ("c",)]
    assert [s.number for s in packed.sources] == [1, 2, 3, 4]
    assert packed.left_out == ()
    assert packed.tokens == sum(words(h.text) + 10 for h in hits)


def test_what_does_not_fit_is_named_and_smaller_ones_still_go_in() -> None:
    hits = [hit("a", "A", 0, 100, 0.9), hit("big", "A", 1000, 2000, 0.8), hit("c", "A", 300, 400, 0.7)]
    packed = pack(hits, 2 * (words(LONG[:100]) + 10) + 2, words, overhead_tokens=10)
    assert [s.chunk_ids for s in packed.sources] == [("a",), ("c",)]
    assert packed.left_out == (LeftOut("big", LeftOutReason.BUDGET),)


def test_neighbours_and_overlaps_become_one_source() -> None:
    packed = pack([hit("a", "A", 0, 120, 0.5), hit("b", "A", 100, 240, 0.9), hit("c", "A", 240, 300, 0.4)], 9999, words)
    (source,) = packed.sources
    assert (source.start, source.end, source.text) == (0, 300, LONG[:300])
    assert source.chunk_ids == ("a", "b", "c")
    assert source.score == 0.9


def test_a_chunk_inside_another_is_a_duplicate() -> None:
    packed = pack([hit("a", "A", 0, 200, 0.9), hit("b", "A", 50, 150, 0.8), hit("c", "B", 50, 150, 0.7)], 9999, words)
    assert packed.left_out == (LeftOut("b", LeftOutReason.DUPLICATE),)
    assert [s.document_id for s in packed.sources] == ["A", "B"]


@given(
    st.lists(
        st.tuples(st.sampled_from("AB"), st.integers(0, 1500), st.integers(1, 400), st.floats(0, 1)),
        unique_by=lambda t: t[:3],
        max_size=12,
    ),
    st.integers(0, 400),
)
def test_the_budget_holds_and_every_hit_is_accounted_for(rows: list[tuple[str, int, int, float]], budget: int) -> None:
    hits = [hit(str(i), d, start, start + size, score) for i, (d, start, size, score) in enumerate(rows)]
    packed = pack(hits, budget, words, overhead_tokens=5)
    inside = [chunk for source in packed.sources for chunk in source.chunk_ids]
    assert packed.tokens <= budget
    assert sorted(inside + [left.chunk_id for left in packed.left_out]) == sorted(h.chunk_id for h in hits)
    assert all(source.text == LONG[source.start : source.end] for source in packed.sources)
