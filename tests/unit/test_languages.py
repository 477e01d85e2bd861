"""Which language a text is in."""

import pytest

from ingestion.languages import UNKNOWN, language_of, languages_of_parts

TEXTS = {
    "en": "The tenant shall pay the rent within the first seven days of each month.",
    "es": "El arrendatario deberá pagar la renta dentro de los siete primeros días de cada mes.",
    "ca": "L'arrendatari ha de pagar la renda dins dels set primers dies de cada mes.",
    "fr": "Le locataire doit payer le loyer dans les sept premiers jours de chaque mois.",
    "de": "Der Mieter muss die Miete innerhalb der ersten sieben Tage jedes Monats zahlen.",
}


@pytest.mark.parametrize("language", TEXTS)
def test_sentences(language: str) -> None:
    assert language_of(TEXTS[language]) == language
    assert language_of(TEXTS[language].upper()) == language
    assert language_of(TEXTS[language] * 200) == language


def test_text_without_words_has_no_language() -> None:
    assert language_of("") == UNKNOWN
    assert language_of("12,000 | 5 % | 2024-03-01") == UNKNOWN


def test_parts_inherit_what_they_do_not_show() -> None:
    parts = [TEXTS["en"]] * 8 + ["12,000", TEXTS["ca"], TEXTS["ca"], TEXTS["fr"]]
    found = languages_of_parts(parts, "en")
    assert found == ["en"] * 9 + ["ca", "ca", "en"]
