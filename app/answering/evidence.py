"""Answerability by evidence: which sentences hold what the question asks for, and whether any does. Pure.

A sentence is evidence when it passes the exact checks of `app.answering.checks` and holds enough of the question's
rare words, or wins the dense leg by a margin. Thresholds and error rates: docs/answerability.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from statistics import median

from app.answering.checks import Context, SentenceTerms, failed_check, sentence_terms
from app.answering.questions import Asked, Question, read
from app.answering.sentences import Kind, split
from ingestion.terms import fold

SentenceKey = tuple[str, int, int]

# A word in the heading or title says less than one in the sentence; one in the neighbouring sentence little.
_IN_CONTEXT, _IN_NEIGHBOUR = 0.8, 0.2
_RELATED = 0.7
_SPREAD_FLOOR = 0.003
# What is asked for ("which court", "how many members") weighs more than what surrounds it.
_FOCUS_WEIGHT = 3.0
MAX_SENTENCES = 8
MAX_CANDIDATES = 40
MAX_CLOSEST = 3


@dataclass(frozen=True, slots=True)
class Passage:
    """A retrieved chunk as it is judged. `text` is the stored text; `header` (title > sections) and `document` (the
    name people know it by) are context; scores are None where a leg did not propose it.
    """

    chunk_id: str
    text: str
    language: str
    dense_score: float | None
    sparse_score: float | None
    fused: float
    header: str = ""
    document_id: str = ""
    document: str = ""


@dataclass(frozen=True, slots=True)
class Statistics:
    """How rare words are where the question was asked: chunks in scope and, per stem, in how many of them it stands.

    `documents_with` (optional) names per stem the documents that hold it, so that a party named only on the first page
    is known to belong to the whole document; the judged passages are used without it.
    """

    total_chunks: int
    df: Mapping[str, int]
    documents_with: Mapping[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Fitted by benchmarks/answerability.py; see docs/answerability.md before you change one.

    `strength`: share + `margin_weight` x dense margin, with sentence scores. `share`: the share alone, without them.
    `cross_margin`: dense margin for a sentence in another language than the question's.
    """

    strength: float = 1.52
    share: float = 0.95
    margin_weight: float = 0.25
    cross_margin: float = 5.0


class Reason(StrEnum):
    """Why a sentence is evidence, or why nothing is."""

    RARE_TERMS = "rare_terms"
    DENSE_MARGIN = "dense_margin"
    CROSS_LANGUAGE = "cross_language"
    NO_PASSAGES = "no_passages"
    WEAK = "weak"
    NAME_ABSENT = "name_absent"
    NUMBER_ABSENT = "number_absent"
    YEAR_ABSENT = "year_absent"
    WRONG_KIND = "wrong_kind"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sentence worth embedding: embed `embed_text` as a passage and hand its cosine back under `key`."""

    key: SentenceKey
    embed_text: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured of one sentence; offsets are into the passage's text.

    `share`: idf-weighted share of the question's words, 0..1. `margin`: cosine above the median of the scored sentences
    of its language, in median absolute deviations; None without a score. `failed`: the exact check that it does not
    pass, else None.
    """

    chunk_id: str
    start: int
    end: int
    same_language: bool
    share: float
    margin: float | None
    failed: str | None
    fused: float
    language: str
    embed_text: str


@dataclass(frozen=True, slots=True)
class EvidenceSentence:
    """A sentence that answers, or may answer: `text[start:end]` of the passage. Higher scores are stronger."""

    chunk_id: str
    start: int
    end: int
    score: float
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether the question can be answered, the evidence best first (empty when not), and why.

    `closest`: when not answerable, the sentences that came nearest. They answer nothing: show them only as a lead.
    """

    answerable: bool
    sentences: tuple[EvidenceSentence, ...]
    reasons: tuple[Reason, ...]
    closest: tuple[EvidenceSentence, ...] = ()


def candidates(
    question: str, passages: Sequence[Passage], statistics: Statistics, limit: int = MAX_CANDIDATES
) -> list[Candidate]:
    """The sentences that dense scores could decide about, most promising first.

    Embed each `embed_text` as a passage and `questions.without_names(question)` as the query; give the cosines to
    `judge` as `sentence_scores`. Sentences that fail an exact check stay in: the margin is measured against them.
    """
    return candidates_of(measure(question, passages, statistics), limit)


def candidates_of(measured: Sequence[Measured], limit: int = MAX_CANDIDATES) -> list[Candidate]:
    """As `candidates`, of sentences measured already: then `with_margins` and `decide` save measuring them twice."""
    ranked = sorted(measured, key=lambda m: (-(m.share if m.same_language else 0.0) - m.fused, m.chunk_id, m.start))
    return [Candidate((m.chunk_id, m.start, m.end), m.embed_text) for m in ranked[:limit]]


def judge(
    question: str,
    passages: Sequence[Passage],
    statistics: Statistics,
    *,
    sentence_scores: Mapping[SentenceKey, float] | None = None,
    thresholds: Thresholds | None = None,
) -> Judgement:
    """Decide from the retrieved passages alone whether the question is answered in them.

    `sentence_scores`: cosines of the sentences of `candidates` to the question. Without them only the share of rare
    words decides and a question in another language than the text is never answered.
    """
    measured = measure(question, passages, statistics)
    return decide(with_margins(measured, sentence_scores or {}), thresholds)


def decide(measured: Sequence[Measured], thresholds: Thresholds | None = None) -> Judgement:
    """Apply the thresholds to measured sentences: the last step of `judge`."""
    limits = thresholds or Thresholds()
    if not measured:
        return Judgement(answerable=False, sentences=(), reasons=(Reason.NO_PASSAGES,))
    found = [sentence for m in measured if (sentence := _evidence(m, limits)) is not None]
    if not found:
        nearest = sorted(measured, key=_nearness, reverse=True)
        why = (Reason(nearest[0].failed) if nearest[0].failed else Reason.WEAK,)
        closest = [m for m in nearest if m.failed is None and m.share > 0][:MAX_CLOSEST]
        lead = tuple(EvidenceSentence(m.chunk_id, m.start, m.end, round(m.share, 4), (Reason.WEAK,)) for m in closest)
        return Judgement(answerable=False, sentences=(), reasons=why, closest=lead)
    fused = {m.chunk_id: m.fused for m in measured}
    found.sort(key=lambda s: (-s.score, -fused[s.chunk_id], s.chunk_id, s.start))
    reasons = tuple(dict.fromkeys(reason for sentence in found for reason in sentence.reasons))
    return Judgement(answerable=True, sentences=tuple(found[:MAX_SENTENCES]), reasons=reasons)


def measure(question: str, passages: Sequence[Passage], statistics: Statistics) -> list[Measured]:
    """Measure every sentence of the passages; headings are context, never evidence. About 5 ms a passage."""
    asked = read(question, tuple(dict.fromkeys(passage.language for passage in passages)))
    holders = _holders(asked, passages, statistics)
    return [m for passage in passages for m in _measure_passage(asked, passage, statistics, holders)]


def _measure_passage(
    asked: Question, passage: Passage, statistics: Statistics, holders: Mapping[str, frozenset[str]]
) -> list[Measured]:
    language = passage.language
    about = f"{passage.header}\n{passage.document.replace('_', ' ').replace('-', ' ')}"
    pieces = split(passage.text)
    held = [sentence_terms(passage.text[piece.start : piece.end], language) for piece in pieces]
    whole = frozenset[str]().union(*(piece.numbers for piece in held))
    title = sentence_terms(about, language)
    heading, heading_text = sentence_terms("", language), ""
    own_names = frozenset(form for form, documents in holders.items() if passage.document_id in documents)
    found: list[Measured] = []
    for at, piece in enumerate(pieces):
        text = passage.text[piece.start : piece.end]
        if piece.kind is Kind.HEADING:
            heading, heading_text = held[at], text
            continue
        beside = [
            held[near] for near in (at - 1, at + 1) if 0 <= near < len(pieces) and pieces[near].kind is not Kind.HEADING
        ]
        context = Context(heading=heading, title=title, beside=tuple(beside), passage_numbers=whole, names=own_names)
        found.append(
            Measured(
                chunk_id=passage.chunk_id,
                start=piece.start,
                end=piece.end,
                same_language=language in asked.languages,
                share=_share(asked, held[at], context, statistics, language),
                margin=None,
                failed=failed_check(asked, text, held[at], context, language),
                fused=passage.fused,
                language=language,
                embed_text=f"{heading_text}\n{text}" if heading_text else text,
            )
        )
    return found


def _holders(asked: Question, passages: Sequence[Passage], statistics: Statistics) -> dict[str, frozenset[str]]:
    """Per name of the question the documents that hold it, out of the passages and what the caller knows."""
    names = [word for word in asked.asked if word.is_name]
    holders = {word.form: set[str]() for word in names}
    for passage in passages:
        if not names:
            break
        about = f"{passage.header}\n{passage.document.replace('_', ' ').replace('-', ' ')}\n{passage.text}"
        held = sentence_terms(about, passage.language)
        for word in names:
            if word.stems.get(passage.language) in held.stems or fold(word.form) in held.folded:
                holders[word.form].add(passage.document_id)
    for word in names:
        for stem in set(word.stems.values()):
            holders[word.form].update(statistics.documents_with.get(stem, ()))
    return {form: frozenset(documents) for form, documents in holders.items()}


def _share(asked: Question, held: SentenceTerms, context: Context, statistics: Statistics, language: str) -> float:
    """The share of the question's words in the sentence and its context, weighted by their rarity.

    Names and years are checked exactly elsewhere and count only when the question is about nothing else: otherwise
    every sentence about a party would seem to answer every question about it.
    """
    words = [word for word in asked.asked if not word.is_year]
    counted = [word for word in words if not word.is_name] or words
    total = held_weight = 0.0
    for word in counted:
        stem = word.stems.get(language, word.form)
        weight = _rarity(stem, statistics) * (_FOCUS_WEIGHT if word.is_focus else 1.0)
        total += weight
        held_weight += weight * _presence(word, stem, held, context)
    return held_weight / total if total else 0.0


def _presence(word: Asked, stem: str, held: SentenceTerms, context: Context) -> float:
    if stem in held.stems:
        return 1.0
    if any(_related(stem, other) for other in held.stems):
        return _RELATED
    if word.is_focus:
        return 0.0  # a heading about members does not make every number below it their number
    if stem in context.heading.stems or stem in context.title.stems or (word.is_name and word.form in context.names):
        return _IN_CONTEXT
    return _IN_NEIGHBOUR if any(stem in near.stems for near in context.beside) else 0.0


def _related(one: str, other: str) -> bool:
    """Whether two stems are likely of one family (`confidenti`, `confid`): they share most of the longer one."""
    if one[:4] != other[:4] or not one.isalpha():
        return False
    alike = 4
    while alike < min(len(one), len(other)) and one[alike] == other[alike]:
        alike += 1
    return alike >= 0.6 * max(len(one), len(other)) and min(len(one), len(other)) >= 4


def _rarity(stem: str, statistics: Statistics) -> float:
    """BM25's idf (Robertson & Zaragoza 2009, eq. 3.3, kept positive)."""
    df = min(statistics.df.get(stem, 0), statistics.total_chunks)
    return math.log(1.0 + (statistics.total_chunks - df + 0.5) / (df + 0.5))


def with_margins(measured: Sequence[Measured], scores: Mapping[SentenceKey, float]) -> list[Measured]:
    """Give the sentences that have a cosine their dense margin.

    Cosines of e5 live in a narrow band that moves with the question and the language: only margins compare.
    """
    by_language: dict[str, list[float]] = {}
    for m in measured:
        if (score := scores.get((m.chunk_id, m.start, m.end))) is not None:
            by_language.setdefault(m.language, []).append(score)
    level: dict[str, tuple[float, float]] = {}
    for language, values in by_language.items():
        middle = median(values)
        # The floor keeps a handful of nearly equal cosines from making a margin out of nothing.
        level[language] = middle, median(abs(value - middle) for value in values) + _SPREAD_FLOOR
    marked: list[Measured] = []
    for m in measured:
        score = scores.get((m.chunk_id, m.start, m.end))
        if score is not None:
            middle, spread = level[m.language]
            m = replace(m, margin=(score - middle) / spread)  # noqa: PLW2901
        marked.append(m)
    return marked


def _evidence(m: Measured, limits: Thresholds) -> EvidenceSentence | None:
    if m.failed is not None:
        return None
    reasons: tuple[Reason, ...]
    if not m.same_language:
        if m.margin is None or m.margin < limits.cross_margin:
            return None
        strength, reasons = limits.margin_weight * m.margin, (Reason.CROSS_LANGUAGE, Reason.DENSE_MARGIN)
    elif m.margin is None:
        if m.share < limits.share:
            return None
        strength, reasons = m.share, (Reason.RARE_TERMS,)
    else:
        strength = m.share + limits.margin_weight * m.margin
        if strength < limits.strength:
            return None
        by_words = m.share >= limits.strength / 2
        by_margin = not by_words or limits.margin_weight * m.margin >= limits.strength / 2
        reasons = (*((Reason.RARE_TERMS,) if by_words else ()), *((Reason.DENSE_MARGIN,) if by_margin else ()))
    return EvidenceSentence(m.chunk_id, m.start, m.end, round(strength, 4), reasons)


def _nearness(m: Measured) -> tuple[float, float, str, int]:
    return (m.share + Thresholds().margin_weight * (m.margin or 0.0), m.fused, m.chunk_id, -m.start)
