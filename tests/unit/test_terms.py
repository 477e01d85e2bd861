"""Terms: stems per language, exact numbers, exact offsets, names, elision, scripts without spaces."""

import threading
import time
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingestion.stopwords import BY_LANGUAGE
from ingestion.terms import STEMMED_LANGUAGES, Term, fold, number_prefixes, stop_words, terms, unaccented_stem


def stems(text: str, language: str | None = "en") -> list[str]:
    return [term.stem for term in terms(text, language)]


def content(text: str, language: str | None = "en") -> list[str]:
    return [term.stem for term in terms(text, language) if not term.is_stop]


def one(text: str, language: str | None = "en") -> Term:
    (found,) = terms(text, language)
    return found


@pytest.mark.parametrize(
    ("language", "first", "second"),
    [
        ("en", "liability", "liabilities"),
        ("en", "terminate", "terminated"),
        ("en", "company's", "companies"),
        ("en", "company’s", "COMPANY"),
        ("es", "plazos", "plazo"),
        ("es", "indemnización", "indemnizaciones"),
        ("ca", "contractes", "contracte"),
        ("ca", "indemnització", "INDEMNITZACIÓ"),
        ("ca", "col·legi", "col·legis"),
        ("ca", "col·legi", "col•legi"),
        ("fr", "contrats", "contrat"),
        ("de", "Verträge", "Vertrag"),
        ("it", "contratti", "contratto"),
        ("pt", "contratos", "contrato"),
        ("ru", "договора", "договор"),
        ("en-GB", "invoices", "invoice"),
    ],
)
def test_inflected_forms_share_a_stem(language: str, first: str, second: str) -> None:
    assert stems(first, language) == stems(second, language)


def test_a_language_without_a_stemmer_is_only_levelled() -> None:
    assert stems("Ünïted STRASSE straße", "xx") == ["united", "strasse", "strasse"]
    assert stems("Companies", None) == stems("companies", "") == ["companies"]


def test_composed_and_decomposed_letters_are_the_same_term() -> None:
    word = "indemnización"
    assert stems(unicodedata.normalize("NFD", word), "es") == stems(word, "es")
    assert stems("ﬁnal oﬃce") == stems("final office")
    assert stems("agree\u00adment") == stems("agreement")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5,120", ["5,120"]),
        ("$5,120.00.", ["5,120.00"]),
        ("12.3(b)", ["12.3(b)"]),
        ("Article 6(1)(f),", ["articl", "6(1)(f)"]),
        ("clause 4(xii)", ["claus", "4(xii)"]),
        ("30", ["30"]),
        ("30%", ["30"]),
        ("30-day", ["30", "day"]),
        ("the 30th of June", ["the", "30", "of", "june"]),
        ("12/2023", ["12/2023"]),
        ("2024-05-03", ["2024-05-03"]),
        ("5–10", ["5", "10"]),
        ("100(USD)", ["100", "usd"]),
        ("A4 and Q3", ["a4", "and", "q3"]),
        ("５，１２０円", ["5,120", "円"]),
        ("٣٠", ["30"]),
        ("30¹ days", ["30", "day"]),
        ("1.º", ["1"]),
        ("10.5.", ["10.5"]),
    ],
)
def test_numbers_stay_exact(text: str, expected: list[str]) -> None:
    found = terms(text, "en")
    assert [term.stem for term in found] == expected
    assert all(term.is_number == any(char.isdigit() for char in term.stem) for term in found)


def test_different_numbers_are_different_terms() -> None:
    spellings = ["5,120", "5.120", "5120", "512", "5,121", "51.20"]
    assert len({one(text).stem for text in spellings}) == len(spellings)


def test_the_wider_references_of_a_clause() -> None:
    assert number_prefixes("6(1)(f)") == ["6(1)", "6"]
    assert number_prefixes("12.3(b)") == ["12.3"]
    assert number_prefixes("5,120") == []


def test_elided_articles_are_their_own_stop_terms() -> None:
    text = "L’Hospitalet: d'aquest l'article del col·legi"
    found = terms(text, "ca")
    assert [(term.form, text[term.start : term.end]) for term in found if not term.is_stop] == [
        ("hospitalet", "Hospitalet"),
        ("article", "article"),
        ("collegi", "col·legi"),
    ]
    assert content("l'accord qu'il signe", "fr") == [*stems("accord il", "fr"), *stems("signe", "fr")]
    assert content("dell'atto", "it") == stems("atto", "it")
    assert content("O'Brien's", "en") == ["o'brien"]


def test_a_word_cut_at_a_line_end_is_joined_and_kept_in_parts() -> None:
    text = "the agree-\n  ment is long-\nTerm"
    found = [(term.form, text[term.start : term.end]) for term in terms(text, "en") if not term.is_stop]
    assert found == [
        ("agreement", "agree-\n  ment"),
        ("agree", "agree"),
        ("ment", "ment"),
        ("long", "long"),
        ("term", "Term"),
    ]


def test_stop_words_are_short_lists_of_function_words() -> None:
    assert content("What is the notice period of this agreement?") == ["notic", "period", "agreement"]
    assert content("¿Cuál es el plazo de preaviso?", "es") == ["plaz", "preavis"]
    assert content("Quin és el termini d'aquest contracte?", "ca")[-2:] == stems("termini contracte", "ca")
    for language, listed in BY_LANGUAGE.items():
        assert 60 < len(listed) < 200, language
        assert {"no", "not", "mes", "sea", "termini", "plazo", "day"}.isdisjoint(listed)
    assert stop_words("de") == frozenset()


def names(text: str, language: str = "en") -> list[str]:
    return [text[term.start : term.end] for term in terms(text, language) if term.is_name]


def test_names_are_words_written_as_names() -> None:
    assert names("What did Maria Puig sign in Barcelona?") == ["Maria", "Puig", "Barcelona"]
    assert names("Mr. Smith of Acme Corporation asked NASA.") == ["Smith", "Acme", "Corporation", "NASA"]
    assert names("Governing law. Payment is due. eBay and iPhone.") == ["eBay", "iPhone"]
    assert names("Northwind Traders shall pay.") == ["Northwind", "Traders"]
    assert names("THE SUPPLIER SHALL NOT BE LIABLE") == []
    assert names("Der Vertrag mit SAP in Berlin", "de") == ["SAP"]
    assert names("¿Quién es Jordi Vila?", "es") == ["Jordi", "Vila"]


def test_us_the_country_is_not_us_the_pronoun() -> None:
    country, pronoun = terms("in the US and WHO", "en"), terms("tell us who", "en")
    assert [(term.form, term.is_stop) for term in country if term.is_name] == [("us", False), ("who", False)]
    assert all(term.is_stop for term in pronoun if term.form in {"us", "who"})


def test_acronyms_with_full_stops_are_one_term() -> None:
    assert content("la societat Nord S.A. paga", "ca")[2] == "sa"
    assert one("U.S.").stem == one("US").stem == "us"


def test_scripts_without_spaces_become_pairs_of_characters() -> None:
    text = "契約書は有効"
    assert [(term.stem, term.start, term.end) for term in terms(text, "ja")] == [
        (text[at : at + 2], at, at + 2) for at in range(5)
    ]
    assert stems("約", "zh") == ["約"]
    assert stems("합의서 30일", "ko") == ["합의", "의서", "30", "일"]
    assert set(stems("契約", "ja")) <= set(stems(text, "ja"))


def test_accents_left_out_have_a_stem_of_their_own() -> None:
    plain = unaccented_stem("indemnització", "ca")
    assert plain is not None
    assert stems("indemnitzacio", "ca") == [plain]
    assert unaccented_stem("contracte", "ca") is None
    assert fold("àéîõüçñ") == "aeioucn"
    assert fold("हिन्दी") == unicodedata.normalize("NFC", "हिन्दी")


def test_vowel_signs_stay_in_their_word() -> None:
    assert one("हिन्दी", "hi").end == len("हिन्दी")


@settings(max_examples=300, deadline=None)
@given(
    text=st.text(alphabet=st.one_of(st.characters(), st.sampled_from("aA1.,'’-(\n)·lL契ñ\u0301\u00ad")), max_size=60),
    language=st.sampled_from([None, "xx", *sorted(STEMMED_LANGUAGES)]),
)
def test_offsets_are_exact_for_any_text(text: str, language: str | None) -> None:
    found = terms(text, language)
    assert [term.start for term in found] == sorted(term.start for term in found)
    for term in found:
        assert 0 <= term.start < term.end <= len(text)
        assert text[term.start : term.end].strip()
        assert term.form
    # every plain ASCII word and number is inside some term
    covered = {at for term in found for at in range(term.start, term.end)}
    assert all(at in covered for at, char in enumerate(text) if char.isascii() and char.isalnum())


@pytest.mark.parametrize(
    "unit", ["a", "-", "l'", "1.", "1(a", "A.", "a-\n", "(", "a'", "l·", "1(a)", "\u00ad", "契", "Aa "]
)
def test_time_grows_with_the_length_of_the_text(unit: str) -> None:
    started = time.perf_counter()
    terms(unit * (100_000 // len(unit)), "en")
    assert time.perf_counter() - started < 5


def test_threads_get_the_same_stems() -> None:
    words = [
        f"{word}{suffix}" for word in ("liabil", "terminat", "indemnif") for suffix in ("ity", "ies", "ing", "ied")
    ]
    expected = [stems(word + "x" * n) for n in range(50) for word in words]
    seen: list[list[list[str]]] = []

    def work() -> None:
        seen.append([stems(word + "x" * n) for n in range(50) for word in words])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [expected] * 4
