"""Fusion of the dense and the sparse leg into one ranking. Pure; owns no search and no threshold."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

DENSE_WEIGHT = 0.7


@dataclass(frozen=True, slots=True)
class Scored:
    """One hit of one leg; higher is better, any scale."""

    id: str
    score: float


@dataclass(frozen=True, slots=True)
class Fused:
    """One hit of the fused ranking: `score` in 0..1, the raw scores of the legs that proposed it."""

    id: str
    score: float
    dense: float | None
    sparse: float | None


def fuse(dense: Sequence[Scored], sparse: Sequence[Scored], dense_weight: float = DENSE_WEIGHT) -> list[Fused]:
    """Weighted sum of min-max scores, best first; a hit that a leg lacks counts 0 there.

    Equal scores are ordered by the dense score, the sparse score and the id, so the same input gives the same
    order whatever the order of the legs. A leg without hits leaves the other one's order as it is. An id that a
    leg holds twice counts with its best score. Raises ValueError for a weight outside 0..1 or a score that is
    not finite. Min-max fusion: Lee, "Analyses of multiple evidence combination", SIGIR 1997.
    """
    if not 0.0 <= dense_weight <= 1.0:
        raise ValueError(f"dense_weight must be in 0..1, got {dense_weight}")
    raw_dense, raw_sparse = _best_of(dense), _best_of(sparse)
    level_dense, level_sparse = _min_max(raw_dense), _min_max(raw_sparse)
    fused = [
        Fused(
            id=hit_id,
            score=dense_weight * level_dense.get(hit_id, 0.0) + (1.0 - dense_weight) * level_sparse.get(hit_id, 0.0),
            dense=raw_dense.get(hit_id),
            sparse=raw_sparse.get(hit_id),
        )
        for hit_id in raw_dense.keys() | raw_sparse.keys()
    ]
    return sorted(fused, key=_rank)


def _rank(hit: Fused) -> tuple[float, float, float, str]:
    dense = -math.inf if hit.dense is None else hit.dense
    sparse = -math.inf if hit.sparse is None else hit.sparse
    return (-hit.score, -dense, -sparse, hit.id)


def _best_of(hits: Sequence[Scored]) -> dict[str, float]:
    best: dict[str, float] = {}
    for hit in hits:
        if not math.isfinite(hit.score):
            raise ValueError(f"score of {hit.id} is not finite")
        best[hit.id] = max(hit.score, best.get(hit.id, -math.inf))
    return best


def _min_max(scores: dict[str, float]) -> dict[str, float]:
    """Scores levelled to 0..1; all equal (or one alone) is 1, because the leg did propose them."""
    if not scores:
        return {}
    low, high = min(scores.values()), max(scores.values())
    if high == low:
        return dict.fromkeys(scores, 1.0)
    return {hit_id: (score - low) / (high - low) for hit_id, score in scores.items()}
