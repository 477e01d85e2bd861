"""Fusion of the two legs: min-max, weights, ties."""

import itertools

import pytest

from app.retrieval.fusion import Fused, Scored, fuse


def ids(hits: list[Fused]) -> list[str]:
    return [hit.id for hit in hits]


def test_weights_the_min_max_scores() -> None:
    fused = fuse([Scored("a", 0.9), Scored("b", 0.8), Scored("c", 0.7)], [Scored("b", 12.0), Scored("d", 2.0)])
    assert ids(fused) == ["a", "b", "c", "d"]
    by_id = {hit.id: hit for hit in fused}
    assert by_id["a"].score == pytest.approx(0.7)
    assert by_id["b"].score == pytest.approx(0.7 * 0.5 + 0.3)
    assert by_id["b"].dense == 0.8
    assert by_id["b"].sparse == 12.0
    assert by_id["d"].dense is None
    assert by_id["d"].score == 0.0


def test_one_leg_alone_keeps_its_order() -> None:
    hits = [Scored("x", 3.0), Scored("y", 5.0), Scored("z", 4.0)]
    assert ids(fuse([], hits)) == ["y", "z", "x"]
    assert ids(fuse(hits, [])) == ["y", "z", "x"]
    assert fuse([], []) == []


def test_a_single_hit_counts_fully() -> None:
    assert fuse([Scored("a", 0.75)], [Scored("b", 1.0)])[0] == Fused("a", 0.7, 0.75, None)


def test_the_order_of_the_input_changes_nothing() -> None:
    dense = [Scored("a", 0.8), Scored("b", 0.8), Scored("c", 0.8)]
    expected = fuse(dense, [])
    for order in itertools.permutations(dense):
        assert fuse(list(order), []) == expected
    assert ids(expected) == ["a", "b", "c"]


def test_an_id_twice_counts_once_with_its_best_score() -> None:
    fused = fuse([Scored("a", 0.2), Scored("a", 0.9), Scored("b", 0.5)], [])
    assert ids(fused) == ["a", "b"]
    assert fused[0].dense == 0.9


@pytest.mark.parametrize("weight", [-0.1, 1.1])
def test_refuses_a_weight_outside_the_unit_interval(weight: float) -> None:
    with pytest.raises(ValueError, match="dense_weight"):
        fuse([], [], weight)


def test_refuses_scores_that_are_not_finite() -> None:
    with pytest.raises(ValueError, match="not finite"):
        fuse([Scored("a", float("nan"))], [])
