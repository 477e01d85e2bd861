"""Sparse vectors: BM25 saturation by the book, stable ids, questions over several languages."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingestion.sparse import AVERAGE_TERMS, K1, B, SparseVector, encode_document, encode_query, term_id
from ingestion.terms import terms


def weights(vector: SparseVector) -> dict[int, float]:
    return dict(zip(vector.indices, vector.values, strict=True))


def overlap(question: str, languages: list[str], text: str, language: str) -> float:
    """The score without IDF: what the index sums up."""
    document = weights(encode_document(text, language))
    return sum(document.get(index, 0.0) for index in encode_query(question, languages).indices)


def test_ids_are_stable_across_releases() -> None:
    # Written into every index: a change of these numbers needs a rebuild of all points.
    assert [term_id(stem) for stem in ("notic", "5,120", "indemnitz")] == [1573312120, 1043929162, 3895126929]


def test_weights_are_bm25_term_saturation() -> None:
    text = "notice notice notice fee " + "word " * 16
    length = 20
    norm = K1 * (1 - B + B * length / AVERAGE_TERMS)
    found = weights(encode_document(text, "en"))
    assert found[term_id("notic")] == pytest.approx(3 * (K1 + 1) / (3 + norm), abs=1e-5)
    assert found[term_id("fee")] == pytest.approx((K1 + 1) / (1 + norm), abs=1e-5)
    assert len(found) == 3


def test_longer_text_weighs_a_word_less_and_repetition_saturates() -> None:
    short = weights(encode_document("notice of termination", "en"))[term_id("notic")]
    long = weights(encode_document("notice " + "other " * 300, "en"))[term_id("notic")]
    assert long < short
    many = weights(encode_document("notice " * 1000, "en"))[term_id("notic")]
    assert many < K1 + 1


def test_stop_words_weigh_nothing() -> None:
    assert not encode_document("What is this of the", "en")
    assert encode_document("", "en") == SparseVector((), ())
    assert not encode_query("", ["en"])


def test_a_question_of_stop_words_keeps_them() -> None:
    assert set(encode_query("to be", ["en"]).indices) >= {term_id("to"), term_id("be")}


def test_queries_weigh_each_stem_once() -> None:
    query = encode_query("notice notice notices", ["en"])
    assert term_id("notic") in query.indices
    assert set(query.values) == {1.0}


def test_a_question_meets_documents_of_each_language() -> None:
    languages = ["en", "es", "ca"]
    assert overlap("notice periods", languages, "The notice period is short", "en") > 0
    assert overlap("¿Cuál es el plazo?", languages, "Los plazos de pago", "es") > 0
    assert overlap("Quins són els terminis?", languages, "El termini de pagament", "ca") > 0
    assert overlap("¿Cuál es el plazo?", languages, "el de la es que", "ca") == 0


def test_only_the_stop_words_of_the_questions_own_language_are_left_out() -> None:
    # "son" is a Spanish stop word and an English noun
    assert overlap("Who is the son of the tenant?", ["en", "es"], "the son of the landlord", "en") > 0
    assert overlap("¿Quiénes son los de la comunidad?", ["es", "en"], "his son came", "en") == 0


def test_a_question_without_accents_meets_accented_text_and_accents_count_once() -> None:
    text = "la indemnització dels danys"
    without = overlap("indemnitzacio", ["en", "ca"], text, "ca")
    accented = overlap("indemnització", ["en", "ca"], text, "ca")
    assert without > 0
    assert accented == pytest.approx(without)


def test_numbers_match_exactly_but_a_clause_finds_its_paragraphs() -> None:
    text = "Under Article 6(1)(f) the fee is 5,120."
    for question, matches in [("5,120", True), ("5120", False), ("512", False), ("6(1)(f)", True), ("6(1)", True)]:
        assert (overlap(question, ["en"], text, "en") > 0) is matches, question
    assert overlap("6", ["en"], text, "en") > 0
    assert overlap("6(1)(g)", ["en"], text, "en") == 0
    assert overlap("6(1)(f)", ["en"], "Article 6 applies", "en") == 0


@settings(max_examples=150, deadline=None)
@given(text=st.text(max_size=200), language=st.sampled_from(["en", "es", "ca", "ja", "xx", ""]))
def test_vectors_are_well_formed_for_any_text(text: str, language: str) -> None:
    for vector in (encode_document(text, language), encode_query(text, [language, "en"])):
        assert list(vector.indices) == sorted(set(vector.indices))
        assert len(vector.indices) == len(vector.values)
        assert all(0 <= index < 2**32 for index in vector.indices)
        assert all(value > 0 for value in vector.values)
    kept = [term for term in terms(text, language) if not term.is_stop]
    assert bool(encode_document(text, language)) == bool(kept)
