"""What a question asks for: language, words that count, the kind of answer."""

import pytest

from app.answering.questions import Expects, read, spoken_languages, without_names


@pytest.mark.parametrize(
    ("question", "language"),
    [
        ("What is the cap on liability?", "en"),
        ("¿Cuál es la renta mensual del local?", "es"),
        ("Quin és el preu anual del contracte?", "ca"),
        ("cuanto dura el mandato de la junta", "es"),
        ("quants dies de vacances tenim", "ca"),
    ],
)
def test_language_by_its_function_words(question: str, language: str) -> None:
    assert spoken_languages(question) == (language,)


def test_without_function_words_any_language_is_possible() -> None:
    assert spoken_languages("Harrow 2023") == ("en", "es", "ca")


@pytest.mark.parametrize(
    ("question", "expects"),
    [
        ("How many employees are there?", Expects.COUNT),
        ("¿Cuántos socios tiene la cooperativa?", Expects.COUNT),
        ("Quantes places té la sala?", Expects.COUNT),
        ("How much does the review cost?", Expects.MONEY),
        ("¿Qué multa tiene la ocupación sin licencia?", Expects.MONEY),
        ("Quin sou té la directora?", Expects.MONEY),
        ("How long are files kept?", Expects.DURATION),
        ("How much notice must be given?", Expects.DURATION),
        ("¿Cuánto dura el mandato?", Expects.DURATION),
        ("Quant de temps es guarden?", Expects.DURATION),
        ("When does it end?", Expects.TIME),
        ("Quan es reuneix la comissió?", Expects.TIME),
        ("¿A qué hora cierran?", Expects.TIME),
        ("What share of the staff is female?", Expects.NUMBER),
        ("Who is the chair?", Expects.ANYTHING),
        ("What happens when the plant closes?", Expects.ANYTHING),
        ("Which court decides?", Expects.ANYTHING),
    ],
)
def test_the_kind_of_answer(question: str, expects: Expects) -> None:
    assert read(question).expects is expects


@pytest.mark.parametrize(
    ("question", "forms"),
    [
        ("How much does the review of the cyber programme cost?", ["review", "cyber", "programme"]),
        ("¿Cuánto cuesta al año el mantenimiento de los ascensores?", ["año", "mantenimiento", "ascensores"]),
        ("Quant es paga de menys si fem compost a casa?", ["menys", "compost", "casa"]),
        ("What is the maximum number of pallets?", ["pallets"]),
    ],
)
def test_question_words_and_generic_verbs_do_not_count(question: str, forms: list[str]) -> None:
    assert [word.form for word in read(question).asked] == forms


def test_names_numbers_years_and_the_focus_are_told() -> None:
    words = {word.form: word for word in read("How many pallets did Calder deliver for EUR 400,000 in 2022?").asked}
    assert words["pallets"].is_focus
    assert words["calder"].is_name
    assert words["400,000"].is_number
    assert not words["400,000"].is_year
    assert words["2022"].is_year
    assert "eur" not in words


def test_stems_are_those_of_the_language_of_the_text() -> None:
    (word,) = read("¿Cuántas notificaciones hay?", ["es", "en"]).asked
    assert set(word.stems) == {"es", "en"}
    assert word.stems["es"] != word.stems["en"]


def test_names_are_left_out_of_the_dense_question() -> None:
    assert (
        without_names("Which law governs the agreement with Harrow Packaging?")
        == "Which law governs the agreement with?"
    )
    assert without_names("Who is Annika Vogel?") == "Who is Annika Vogel?"
