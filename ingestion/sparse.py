"""Sparse vectors for the lexical leg: BM25 term saturation here, inverse document frequency in the index.

The index multiplies by the IDF of the tenant's own collection (`Modifier.IDF` with an IDF corpus): no statistics here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from ingestion.terms import Term, base_language, fold, number_prefixes, stem, stop_words, terms, unaccented_stem

# Robertson & Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and Beyond", eq. 3.15.
K1 = 1.2
B = 0.75
# Terms without stop words in a chunk of about 1,400 characters; constant, so that a vector depends on its text alone.
AVERAGE_TERMS = 130.0
# Stems of words typed without their accents live beside the real ones, so that an accented question counts once.
_UNACCENTED_MARK = "~"


@dataclass(frozen=True, slots=True)
class SparseVector:
    """Term ids (unsigned 32 bit, ascending, unique) and their weights (positive), of equal length."""

    indices: tuple[int, ...]
    values: tuple[float, ...]

    def __bool__(self) -> bool:
        return bool(self.indices)


@lru_cache(maxsize=262144)
def term_id(stem: str) -> int:
    """Return the stable unsigned 32-bit id of a stem: the first 4 bytes (little endian) of BLAKE2b over its UTF-8.

    Two of 100,000 stems collide with probability n**2 / 2**33: about one pair; colliding stems of one text add up.
    """
    return int.from_bytes(blake2b(stem.encode(), digest_size=4).digest(), "little")


def encode_document(text: str, language: str | None) -> SparseVector:
    """Encode a chunk (in its own language). Empty when the text has no term that is not a stop word."""
    code = base_language(language)
    counts: dict[int, int] = {}
    length = 0
    for term in terms(text, code):
        if term.is_stop:
            continue
        length += 1
        for name in _document_stems(term, code):
            key = term_id(name)
            counts[key] = counts.get(key, 0) + 1
    norm = K1 * (1 - B + B * length / AVERAGE_TERMS)
    ordered = sorted(counts)
    return SparseVector(tuple(ordered), tuple(round(counts[i] * (K1 + 1) / (counts[i] + norm), 6) for i in ordered))


def encode_query(text: str, languages: Sequence[str]) -> SparseVector:
    """Encode a question: the union of its stems over the languages of the collection, weight 1 each.

    The stop words that are left out are those of the language with most stop words in the question, so that a word of
    one language is not lost to the list of another. A question of nothing but stop words keeps them all.
    """
    codes = list(dict.fromkeys(base_language(language) for language in languages)) or [""]
    per_language = {code: terms(text, code) for code in codes}
    speaking = _speaking(per_language)
    ignored = {(term.start, term.end) for code in speaking for term in per_language[code] if term.is_stop}
    everything = [(code, term) for code, found in per_language.items() for term in found]
    kept = [(code, term) for code, term in everything if (term.start, term.end) not in ignored] or everything
    ids = {term_id(name) for code, term in kept for name in _query_stems(term, code)}
    ordered = tuple(sorted(ids))
    return SparseVector(ordered, (1.0,) * len(ordered))


def _document_stems(term: Term, code: str) -> list[str]:
    names = [term.stem]
    if term.is_number:
        names.extend(number_prefixes(term.form))  # a question for article 6 finds article 6(1)(f)
    elif (plain := unaccented_stem(term.form, code)) is not None:
        names.append(_UNACCENTED_MARK + plain)
    return names


def _query_stems(term: Term, code: str) -> list[str]:
    names = [term.stem]
    if not term.is_number and fold(term.form) == term.form:
        names.append(_UNACCENTED_MARK + stem(term.form, code))
    return names


def _speaking(per_language: dict[str, list[Term]]) -> list[str]:
    """Return the languages with most stop words in the question (several when equal; none when no word is one)."""
    counts = {
        code: sum(term.is_stop or term.form in stop_words(code) for term in found)
        for code, found in per_language.items()
    }
    most = max(counts.values())
    return [code for code, count in counts.items() if count == most and most > 0]
