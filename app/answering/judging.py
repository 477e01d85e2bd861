"""Evidence in passages: words counted exactly in Postgres, the most promising sentences weighed by the embeddings."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from app.answering import evidence, questions
from app.answering.tools import AnswerTools
from app.core.db import UnitOfWork
from app.identity.permissions import Principal
from app.retrieval import search
from app.retrieval.search import FoundChunk
from ingestion.sparse import term_id
from ingestion.terms import terms

#: Sentences of each document whose cosines are measured when documents are judged one by one.
_CANDIDATES_PER_DOCUMENT = 6
#: Sentences whose cosines are measured in all: about 8 s of the packaged embeddings.
_MOST_CANDIDATES = 240

REFUSALS = {
    evidence.Reason.NO_PASSAGES: "No passage was found.",
    evidence.Reason.WEAK: "No sentence holds enough of what the question asks for.",
    evidence.Reason.NAME_ABSENT: "The nearest sentences are not about the name in the question.",
    evidence.Reason.NUMBER_ABSENT: "The nearest sentences do not hold the number in the question.",
    evidence.Reason.YEAR_ABSENT: "The nearest sentences are not about the year in the question.",
    evidence.Reason.WRONG_KIND: "The nearest sentences do not hold the kind of thing that is asked for.",
}


@dataclass(frozen=True, slots=True)
class DocumentsJudged:
    """One judgement over everything, and one for each document, on the same scale."""

    overall: evidence.Judgement
    by_document: dict[UUID, evidence.Judgement]

    @property
    def answerable(self) -> bool:
        """Whether any document holds an answer."""
        return any(own.answerable for own in self.by_document.values())


def refusals(judgement: evidence.Judgement) -> list[str]:
    """Why nothing is evidence, as sentences."""
    return [REFUSALS[reason] for reason in judgement.reasons if reason in REFUSALS]


def stems(question: str, languages: Collection[str]) -> set[str]:
    """Stems of the question in every language that it may be held against."""
    spoken = {*languages, *questions.spoken_languages(question)}
    return {term.stem for language in spoken for term in terms(question, language)}


def statistics(
    uow: UnitOfWork, collection_id: UUID, question: str, hits: Sequence[FoundChunk], languages: Collection[str] = ()
) -> evidence.Statistics:
    """How rare the question's words are in the collection, and which of the hits' documents hold them."""
    asked = stems(question, {*languages, *(hit.language for hit in hits)})
    documents = {hit.document_id for hit in hits}
    counted = search.frequencies(uow, collection_id, [term_id(stem) for stem in asked], documents)
    return evidence.Statistics(
        total_chunks=counted.total_chunks,
        df={stem: counted.by_term.get(term_id(stem), 0) for stem in asked},
        documents_with={stem: counted.holders.get(term_id(stem), frozenset()) for stem in asked},
    )


def judge(
    tools: AnswerTools, actor: Principal, question: str, hits: Sequence[FoundChunk], known: evidence.Statistics
) -> evidence.Judgement:
    """Judge passages together, with cosines of their most promising sentences to the question."""
    measured = evidence.measure(question, _passages(hits), known)
    return evidence.decide(_weighed(tools, actor, question, measured, evidence.candidates_of(measured)))


def judge_documents(
    tools: AnswerTools,
    actor: Principal,
    question: str,
    hits: Sequence[FoundChunk],
    known: evidence.Statistics,
    *,
    words_alone: bool = False,
) -> DocumentsJudged:
    """Judge each document for itself; the margins are those over the sentences of all of them.

    `words_alone`: a sentence that holds all words of the question is evidence whatever its margin. Where most documents
    say the same, as they may when they are counted, no sentence stands out from the others.
    """
    of_document = {str(hit.chunk_id): hit.document_id for hit in hits}
    by_document: dict[UUID, list[evidence.Measured]] = defaultdict(list)
    for sentence in evidence.measure(question, _passages(hits), known):
        by_document[of_document[sentence.chunk_id]].append(sentence)
    each = max(1, min(_CANDIDATES_PER_DOCUMENT, _MOST_CANDIDATES // max(1, len(by_document))))
    chosen = [c for own in by_document.values() for c in evidence.candidates_of(own, each)][:_MOST_CANDIDATES]
    everything = [sentence for own in by_document.values() for sentence in own]
    weighed: dict[UUID, list[evidence.Measured]] = defaultdict(list)
    marked = _weighed(tools, actor, question, everything, chosen)
    for sentence in marked:
        weighed[of_document[sentence.chunk_id]].append(sentence)
    judged = {at: evidence.decide(own) for at, own in weighed.items()}
    if words_alone:
        for at, own in judged.items():
            if not own.answerable:
                judged[at] = evidence.decide(by_document[at])
    return DocumentsJudged(evidence.decide(marked), judged)


def _passages(hits: Sequence[FoundChunk]) -> list[evidence.Passage]:
    return [
        evidence.Passage(
            chunk_id=str(hit.chunk_id),
            text=hit.text,
            language=hit.language,
            dense_score=hit.dense,
            sparse_score=hit.sparse,
            fused=hit.score,
            header=hit.header,
            document_id=str(hit.document_id),
            document=hit.document_name,
        )
        for hit in hits
    ]


def _weighed(
    tools: AnswerTools,
    actor: Principal,
    question: str,
    measured: Sequence[evidence.Measured],
    chosen: Sequence[evidence.Candidate],
) -> list[evidence.Measured]:
    # An int8 model's values shift a little with the batch: sorted, the order of uploads does not change an answer.
    ordered = sorted(chosen, key=lambda candidate: candidate.embed_text)
    cosines = search.cosines(
        tools.search, actor.tenant_id, questions.without_names(question), [c.embed_text for c in ordered]
    )
    scores = {candidate.key: cosine for candidate, cosine in zip(ordered, cosines, strict=True)}
    return evidence.with_margins(measured, scores)
