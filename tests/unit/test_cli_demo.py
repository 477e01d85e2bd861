"""The samples hold what the demo expects of them, and every one of its expectations can fail."""

import importlib.util
import io
import zipfile
from collections.abc import Callable
from copy import deepcopy
from email import message_from_bytes, policy
from pathlib import Path
from types import ModuleType
from typing import Any

import docx
import openpyxl
import pypdf
import pytest

from app.cli.demo import samples_folder
from app.cli.expectations import (
    PAGES,
    QUESTIONS,
    REPEATED,
    SCAN,
    Question,
    cached_share,
    coverage_line,
    repeat_shortfalls,
    shortfalls,
    verified,
)
from ingestion import word

Json = dict[str, Any]
SAMPLES = Path(__file__).resolve().parents[2] / "samples"
FILES = SAMPLES / "files"
COUNT = next(question for question in QUESTIONS if question.yes)
ABSENT = next(question for question in QUESTIONS if not question.found)
LOCAL = QUESTIONS[0]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("samples_make", SAMPLES / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def page_text(name: str, page: int) -> str:
    path = FILES / name
    if path.suffix == ".pdf":
        text = pypdf.PdfReader(path).pages[page - 1].extract_text()
    elif path.suffix == ".docx":
        text = word.parse(path)[page - 1].text
    else:
        text = path.read_text(encoding="utf-8")
    return " ".join(text.split())


# --- the files -------------------------------------------------------------------------------------------------------


def test_the_pages_of_the_samples_are_those_that_are_expected() -> None:
    def pages(path: Path) -> int:
        if path.suffix == ".pdf":
            return len(pypdf.PdfReader(path).pages)
        return len(openpyxl.load_workbook(path).worksheets) if path.suffix == ".xlsx" else 1

    assert samples_folder() == FILES
    assert {path.relative_to(FILES).as_posix(): pages(path) for path in FILES.rglob("*.*")} == PAGES


def test_the_script_makes_the_invented_files(script: ModuleType) -> None:
    made: dict[str, bytes] = script.made()
    assert made == script.made()
    assert made.keys() <= PAGES.keys()
    for name in ("contracts/letter-of-intent.md", "delivery-notice.eml"):
        assert (FILES / name).read_bytes() == made[name]
    # Packages and pictures depend on the libraries that write them: what they say must be the same.
    draft = "contracts/map-licence-draft.docx"
    assert texts(made[draft]) == texts((FILES / draft).read_bytes())
    assert cells(made["price-list.xlsx"]) == cells((FILES / "price-list.xlsx").read_bytes())


def texts(package: bytes) -> list[str]:
    """All text with what was deleted and inserted."""
    return [*docx.Document(io.BytesIO(package)).element.body.itertext()]


def cells(book: bytes) -> list[list[tuple[Any, ...]]]:
    return [list(sheet.iter_rows(values_only=True)) for sheet in openpyxl.load_workbook(io.BytesIO(book)).worksheets]


def test_every_file_has_its_licence() -> None:
    notice = (SAMPLES / "NOTICE").read_text(encoding="utf-8")
    for words in (
        "CC BY 4.0",
        "The Atticus Project",
        "https://creativecommons.org/licenses/by/4.0/",
        "CC0",
        "Changes:",
    ):
        assert words in notice
    for name in PAGES:
        assert f"files/{name}" in notice


def test_the_samples_are_small() -> None:
    assert sum(path.stat().st_size for path in FILES.rglob("*.*")) < 3_000_000


def test_expected_words_stand_on_the_pages_that_are_named() -> None:
    quotes = [quote for question in QUESTIONS for quote in question.quotes]
    assert {quote.document.split(".")[-1] for quote in quotes} == {"pdf", "docx", "md"}
    for quote in quotes:
        assert quote.words in page_text(quote.document, quote.page).replace("- ", ""), quote
    assert {"English", "Spanish", "Catalan"} <= {question.language for question in QUESTIONS}


def test_only_the_documents_that_count_speak_of_the_laws_of_a_state() -> None:
    for name in PAGES.keys() - {SCAN}:
        if name.endswith((".pdf", ".docx", ".md")):
            text = " ".join(page_text(name, page) for page in range(1, PAGES[name] + 1)).lower()
            assert ("laws of" in text) is (name in COUNT.yes + COUNT.no), name


def test_the_draft_has_tracked_changes_and_reads_as_if_they_were_accepted() -> None:
    path = FILES / "contracts" / "map-licence-draft.docx"
    with zipfile.ZipFile(path) as package:
        body = package.read("word/document.xml")
    assert body.count(b"<w:ins ") == body.count(b"<w:del ") == 6
    (page,) = word.parse(path)
    assert "State of Oregon" in page.text
    assert "Delaware" not in page.text
    deleted = [element.meta["text"] for element in page.elements if element.kind == "revision"]
    assert {"Delaware", "Each"} <= set(deleted)


def test_the_mail_has_an_attachment() -> None:
    message = message_from_bytes((FILES / "delivery-notice.eml").read_bytes(), policy=policy.default)
    assert [part.get_filename() for part in message.walk() if part.get_filename()] == ["packing-list.csv"]


def test_the_scan_is_a_picture_and_alone_answers_the_question_that_is_not_found(script: ModuleType) -> None:
    page = pypdf.PdfReader(FILES / SCAN).pages[0]
    assert page.extract_text().strip() == ""
    assert len(page.images) == 1
    assert any("500 copies" in line for line, _ in script.SCAN)
    others = [name for name in PAGES if name.endswith((".docx", ".md"))]
    assert not [name for name in others if "tidal atlas" in page_text(name, 1)]


# --- the expectations ------------------------------------------------------------------------------------------------


def expected(question: Question) -> Json:
    """An answer that meets the expectation."""
    citations = [
        {
            "ordinal": at,
            "document": quote.document,
            "page": quote.page,
            "quote": f"... {quote.words} ...",
            "verified": True,
        }
        for at, quote in enumerate(question.quotes, start=1)
    ]
    verdicts = []
    if question.yes:
        for name in PAGES.keys() - {SCAN}:
            said = "yes" if name in question.yes else "no" if name in question.no else "silent"
            ordinals = []
            if said != "silent":
                ordinals = [len(citations) + 1]
                citations.append({"ordinal": ordinals[0], "document": name, "page": 1, "quote": "q", "verified": True})
            verdicts.append({"document": name, "verdict": said, "proved": True, "ordinals": ordinals, "note": ""})
    full = question.expected_route == "full"
    pages = sum(PAGES.values())
    silent = len(PAGES) - 1 - len(question.yes) - len(question.no)
    return {
        "state": "succeeded" if question.found else "not_found",
        "route": question.expected_route,
        "citations": citations,
        "verdicts": verdicts,
        "tally": {"yes": len(question.yes), "no": len(question.no), "silent": silent, "unproved": 0}
        if question.yes
        else None,
        "coverage": {
            "documents_total": len(PAGES),
            "pages_total": pages,
            "pages_read": pages - 1 if full else 3,
            "pages_searched_only": 0 if full else pages - 4,
            "sections": 17 if full else 0,
            "skipped": [{"document": SCAN, "pages": 1, "reason": "needs_ocr", "whole_document": True}],
        },
        "tokens": {"engine": 1000, "cached": 980},
        "changes": [],
    }


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: f"{question.kind} {question.language}")
def test_the_answer_that_is_expected_meets_the_expectation(question: Question) -> None:
    assert shortfalls(question, expected(question)) == []


def change(answer: Json, *path: Any, to: Any) -> None:
    for key in path[:-1]:
        answer = answer[key]
    answer[path[-1]] = to


def _verdict(name: str, **facts: Any) -> Callable[[Json], None]:
    def apply(answer: Json) -> None:
        next(verdict for verdict in answer["verdicts"] if verdict["document"] == name).update(facts)

    return apply


def _unverify(answer: Json) -> None:
    for citation in answer["citations"]:
        citation["verified"] = False


@pytest.mark.parametrize(
    ("question", "spoil", "says"),
    [
        (LOCAL, lambda a: _unverify(a), "no verified quote"),
        (LOCAL, lambda a: change(a, "citations", 0, "page", to=2), "no verified quote"),
        (LOCAL, lambda a: change(a, "citations", 0, "document", to="price-list.xlsx"), "no verified quote"),
        (LOCAL, lambda a: change(a, "citations", 0, "quote", to="Something else."), "no verified quote"),
        (LOCAL, lambda a: change(a, "route", to="full"), "route full, expected retrieval"),
        (LOCAL, lambda a: change(a, "state", to="not_found"), "state not_found"),
        (REPEATED, lambda a: a["citations"].pop(), "no verified quote"),
        (REPEATED, lambda a: change(a, "coverage", "pages_read", to=25), "do not add up"),
        (REPEATED, lambda a: a["coverage"].update(pages_read=25, pages_searched_only=1), "25 pages read"),
        (REPEATED, lambda a: change(a, "coverage", "sections", to=0), "pages read in a full pass"),
        (REPEATED, lambda a: change(a, "coverage", "documents_total", to=14), "of the samples: 13, 27"),
        (REPEATED, lambda a: change(a, "coverage", "skipped", 0, "reason", to="failed"), "named as not read"),
        (REPEATED, lambda a: change(a, "coverage", to={}), "no coverage"),
        (ABSENT, lambda a: change(a, "state", to="succeeded"), "state succeeded, expected not_found"),
        (ABSENT, lambda a: change(a, "citations", to=expected(LOCAL)["citations"]), "expected none"),
        (ABSENT, lambda a: change(a, "coverage", "skipped", to=[]), "named as not read: nothing"),
        (COUNT, _verdict(COUNT.yes[0], verdict="silent"), f"{COUNT.yes[0]}: silent, expected yes"),
        (COUNT, _verdict(COUNT.no[0], verdict="yes"), f"{COUNT.no[0]}: yes, expected no"),
        (COUNT, _verdict("price-list.xlsx", verdict="yes"), "price-list.xlsx: yes, expected silent"),
        (COUNT, _verdict(COUNT.yes[0], proved=False), "no verified quote proves its yes"),
        (COUNT, _verdict(COUNT.yes[0], ordinals=[]), "no verified quote proves its yes"),
        (COUNT, lambda a: a["verdicts"].pop(), "no verdict, expected"),
        (COUNT, lambda a: change(a, "tally", "yes", to=5), "counted 5 yes"),
        (COUNT, lambda a: change(a, "tally", to=None), "counted None yes"),
    ],
)  # fmt: skip
def test_an_expectation_that_is_not_met_says_why(question: Question, spoil: Callable[[Json], None], says: str) -> None:
    answer = deepcopy(expected(question))
    spoil(answer)
    assert says in " | ".join(shortfalls(question, answer))


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"tokens": {"engine": 1000, "cached": 750}}, ""),
        ({"tokens": {"engine": 1000, "cached": 749}}, "74.9% of the prompt"),
        ({"tokens": {"engine": 1000, "cached": None}}, "does not say"),
        ({"tokens": {"engine": None, "cached": None}}, "does not say"),
        ({"changes": [{"what": "prompt", "before": "a", "after": "b"}]}, "its run differs from the first: prompt"),
    ],
)
def test_a_repeated_full_pass_must_come_from_the_cache_and_be_the_same(facts: Json, says: str) -> None:
    found = " | ".join(repeat_shortfalls({**expected(REPEATED), **facts}))
    assert says in found
    assert bool(says) is bool(found)


def test_what_the_table_of_outcomes_says() -> None:
    full, local = expected(REPEATED), expected(LOCAL)
    assert coverage_line(full) == "26 of 27 pages read in 17 sections, signed-addendum.pdf not (needs_ocr)"
    assert coverage_line(local) == "3 of 27 pages read, 23 searched, signed-addendum.pdf not (needs_ocr)"
    assert coverage_line({"coverage": {}}) == "-"
    assert (verified(full), cached_share(full)) == (3, 0.98)
    _unverify(full)
    assert verified(full) == 0
