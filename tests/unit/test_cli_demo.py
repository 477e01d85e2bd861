"""The demo's samples say what its questions expect, and its check can fail."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pypdf
import pytest

from app.cli.demo import QUESTIONS, is_proved, samples_folder

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("samples_make", SAMPLES / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_files_are_what_the_script_makes(script: ModuleType) -> None:
    lying = {path.relative_to(SAMPLES / "files").as_posix() for path in (SAMPLES / "files").rglob("*.*")}
    made: dict[str, bytes] = script.made()
    assert lying == made.keys()
    for name in ("contracts/service-agreement.pdf", "contracts/delivery-notice.eml", "reglament-biblioteca.md"):
        assert (SAMPLES / "files" / name).read_bytes() == made[name]


def test_every_file_has_its_licence() -> None:
    notice = (SAMPLES / "NOTICE").read_text()
    assert "CC0" in notice
    for path in (SAMPLES / "files").rglob("*.*"):
        assert path.relative_to(SAMPLES).as_posix() in notice


def test_expected_words_stand_in_the_samples(script: ModuleType) -> None:
    contract, policy, rules, nothing = QUESTIONS
    pages = pypdf.PdfReader(samples_folder() / str(contract.document)).pages
    assert contract.page is not None
    assert contract.words in pages[contract.page - 1].extract_text()
    assert any(policy.words in text for _, text in script.POLICY)
    assert rules.words in (samples_folder() / str(rules.document)).read_text()
    assert nothing.document is None
    assert all((samples_folder() / str(q.document)).is_file() for q in QUESTIONS if q.document)


def cited(**facts: Any) -> dict[str, Any]:
    question = QUESTIONS[0]
    quote = f"shall not exceed\n{question.words}"
    citation = {"document": question.document, "page": question.page, "quote": quote, "verified": True, **facts}
    return {"state": "succeeded", "citations": [citation]}


def test_only_a_verified_quote_in_its_place_counts() -> None:
    question, nothing = QUESTIONS[0], QUESTIONS[-1]
    assert is_proved(question, cited())
    assert not is_proved(question, cited(verified=False))
    assert not is_proved(question, cited(page=1))
    assert not is_proved(question, cited(document="price-list.xlsx"))
    assert not is_proved(question, cited(quote="Something else."))
    assert not is_proved(question, {"state": "not_found", "citations": []})
    assert is_proved(nothing, {"state": "not_found", "citations": []})
    assert not is_proved(nothing, cited())
