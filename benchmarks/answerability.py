"""Answerability: scores the labelled set with the packaged embedding model, fits the thresholds, reports error rates.

python -m benchmarks.answerability score    # needs the models folder; writes tests/data/answerability/scores.json
python -m benchmarks.answerability fit      # thresholds from the fit split, no model needed
python -m benchmarks.answerability report   # tables for docs/answerability.md, no model needed
python -m benchmarks.answerability errors   # every wrong decision on the fit split
"""

import argparse
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from app.answering.evidence import Thresholds, candidates_of, measure
from app.answering.questions import without_names
from app.retrieval.fusion import Scored, fuse
from ingestion.sparse import encode_document, encode_query
from tests.support import answerability as labelled

LEG_LIMIT = 30
JUDGED = 24


def score(models_dir: Path) -> None:
    """Run both legs for every question over all passages and embed the candidate sentences."""
    embed = _embedder(models_dir)
    passages = labelled.passages()
    questions = labelled.questions()
    dense_passages = embed([f"passage: {p.header}\n{p.text}" for p in passages])
    dense_questions = embed([f"query: {q.question}" for q in questions])
    plain_questions = embed([f"query: {without_names(q.question)}" for q in questions])
    sparse = [encode_document(f"{p.header}\n{p.text}", p.language) for p in passages]
    holding: dict[int, int] = {}
    for vector in sparse:
        for index in vector.indices:
            holding[index] = holding.get(index, 0) + 1
    idf = {i: math.log(1 + (len(passages) - n + 0.5) / (n + 0.5)) for i, n in holding.items()}
    counted = labelled.statistics(passages)
    seen: dict[str, int] = {}
    scored: list[dict[str, Any]] = []
    wanted: list[list[int]] = []
    for at, question in enumerate(questions):
        asked = set(encode_query(question.question, ["en", "es", "ca"]).indices)
        lexical = [sum(w * idf[i] for i, w in zip(v.indices, v.values, strict=True) if i in asked) for v in sparse]
        cosines = [float(dense_questions[at] @ vector) for vector in dense_passages]
        hits = fuse(_best(cosines), [hit for hit in _best(lexical) if hit.score > 0])[:JUDGED]
        rows: list[list[Any]] = [[int(h.id), _round(h.dense), _round(h.sparse), round(h.score, 4)] for h in hits]
        judged = labelled.judged(passages, rows)
        found = candidates_of(measure(question.question, judged, counted))
        wanted.append([seen.setdefault(f"passage: {c.embed_text}", len(seen)) for c in found])
        places = {p.id: i for i, p in enumerate(passages)}
        keys = [[places[chunk], start, end] for chunk, start, end in (c.key for c in found)]
        scored.append({"id": question.id, "passages": rows, "sentences": keys})
    sentences = embed(list(seen))
    for at, row in enumerate(scored):
        keys = row["sentences"]
        row["sentences"] = [
            [*key, round(1e4 * float(plain_questions[at] @ sentences[index]))]
            for key, index in zip(keys, wanted[at], strict=True)
        ]
    lines = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in scored)
    labelled.SCORES.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{len(questions)} questions, {len(passages)} passages, {len(seen)} sentences embedded")


def _embedder(models_dir: Path):  # type: ignore[no-untyped-def]
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(models_dir / "e5" / "tokenizer.json"))
    tokenizer.enable_truncation(512)
    tokenizer.enable_padding(pad_id=1, pad_token="<pad>")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(models_dir / "e5" / "model.onnx"), options)

    def embed(texts: Sequence[str]):  # type: ignore[no-untyped-def]
        vectors = np.zeros((len(texts), 384), np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        for begin in range(0, len(order), 16):
            part = order[begin : begin + 16]
            encoded = tokenizer.encode_batch([texts[i] for i in part])
            feed = {
                "input_ids": np.array([e.ids for e in encoded], np.int64),
                "attention_mask": np.array([e.attention_mask for e in encoded], np.int64),
            }
            vectors[part] = session.run(["sentence_embedding"], feed)[0]
        return vectors

    return embed


def _best(scores: Sequence[float]) -> list[Scored]:
    ranked = sorted(range(len(scores)), key=lambda i: -scores[i])[:LEG_LIMIT]
    return [Scored(str(i), scores[i]) for i in ranked]


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def fit() -> None:
    """Thresholds with the best F0.5 on the fit split: a false answer costs more than a false refusal.

    Sixty questions make a ragged curve, so each point counts as the mean of its neighbourhood.
    """
    cases = [case for case in labelled.cases() if case.question.split == "fit"]
    own = [case for case in cases if case.question.group != "cross"]
    cross = [case for case in cases if case.question.group == "cross"]
    steps = [step / 50 for step in range(25, 121)]
    for weight in (0.1, 0.15, 0.2, 0.25, 0.3):
        curve = [
            _f_half(own, Thresholds(strength=s, margin_weight=weight, cross_margin=99.0), scored=True) for s in steps
        ]
        _print_best(f"strength with margin_weight {weight}", steps, curve)
    steps = [step / 50 for step in range(10, 51)]
    _print_best("share alone", steps, [_f_half(own, Thresholds(share=s), scored=False) for s in steps])
    steps = [step / 10 for step in range(10, 90)]
    curve = [_f_half(cross, Thresholds(cross_margin=s, strength=99.0), scored=True) for s in steps]
    _print_best("cross_margin", steps, curve)


def _print_best(name: str, steps: Sequence[float], curve: Sequence[float], reach: int = 5) -> None:
    smooth = [sum(part) / len(part) for at in range(len(curve)) if (part := curve[max(0, at - reach) : at + reach + 1])]
    at = max(range(len(smooth)), key=lambda i: smooth[i])
    print(f"{name}: {steps[at]} (F0.5 {curve[at]:.3f}, smoothed {smooth[at]:.3f})")


def _f_half(cases: Iterable[labelled.Case], limits: Thresholds, *, scored: bool) -> float:
    outcomes = [labelled.decide(case, limits, scored=scored) for case in cases]
    right = sum(o.right for o in outcomes)
    claimed = sum(o.answered for o in outcomes)
    positive = sum(o.answerable for o in outcomes)
    precision, recall = (right / claimed if claimed else 0.0), right / positive
    return 1.25 * precision * recall / (0.25 * precision + recall) if precision + recall else 0.0


def report() -> None:
    """Print the tables of docs/answerability.md."""
    for scored in (True, False):
        print("\nwith sentence scores" if scored else "\nwithout sentence scores")
        print("| questions | n | false answers | false refusals | right evidence | precision | recall |")
        print("|---|---|---|---|---|---|---|")
        outcomes = [(c.question, labelled.decide(c, None, scored=scored)) for c in labelled.cases()]
        for name, chosen in _slices(outcomes):
            print(f"| {name} | {len(chosen)} | " + " | ".join(_rates(chosen)) + " |")


def _slices(
    outcomes: Sequence[tuple[labelled.Question, labelled.Outcome]],
) -> Iterator[tuple[str, list[labelled.Outcome]]]:
    for split in ("fit", "held_out", "fresh"):
        own = [(q, o) for q, o in outcomes if q.split == split and q.group != "cross"]
        for language in ("en", "es", "ca"):
            yield f"{split} {language}", [o for q, o in own if q.language == language]
        yield f"{split} all", [o for _, o in own]
    for split in ("fit", "held_out"):
        yield f"{split} cross-language", [o for q, o in outcomes if q.split == split and q.group == "cross"]


def _rates(outcomes: Sequence[labelled.Outcome]) -> list[str]:
    return [_with_interval(outcomes, rate) for rate in labelled.RATES.values()]


def _with_interval(
    outcomes: Sequence[labelled.Outcome], rate: Callable[[Sequence[labelled.Outcome]], float | None]
) -> str:
    """The rate and its 95 % bootstrap interval (percentiles of 2,000 resamples, seeded)."""
    rng = random.Random(20)
    drawn = sorted(
        value
        for _ in range(2000)
        if (value := rate([outcomes[rng.randrange(len(outcomes))] for _ in outcomes])) is not None
    )
    value = rate(outcomes)
    if value is None or not drawn:
        return "n/a"
    low, high = drawn[int(0.025 * len(drawn))], drawn[int(0.975 * (len(drawn) - 1))]
    return f"{value:.2f} ({low:.2f}-{high:.2f})"


def errors(splits: Sequence[str]) -> None:
    """Print every wrong decision with its best sentence."""
    for case in labelled.cases():
        if case.question.split not in splits:
            continue
        outcome = labelled.decide(case, None, scored=True)
        if outcome.answered != outcome.answerable or (outcome.answered and not outcome.right):
            measured = labelled.measured(case, scored=True)
            best = max(measured, key=lambda m: (m.failed is None, m.share + 0.2 * (m.margin or 0)))
            text = next(p.text for p in case.passages if p.chunk_id == best.chunk_id)[best.start : best.end]
            kind = "false answer" if not outcome.answerable else "wrong" if outcome.answered else "false refusal"
            print(
                f"{kind:14} {case.question.id:14} {case.question.question}\n    {best.share:.2f} {best.margin} {text!r}"
            )


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("score", "fit", "report", "errors"))
    parser.add_argument("--models", type=Path, default=Path("~/.cache/fullread/models"))
    parser.add_argument("--split", action="append", default=[])
    arguments = parser.parse_args()
    if arguments.action == "score":
        score(arguments.models.expanduser())
    elif arguments.action == "fit":
        fit()
    elif arguments.action == "report":
        report()
    else:
        errors(arguments.split or ["fit"])


if __name__ == "__main__":
    main()
