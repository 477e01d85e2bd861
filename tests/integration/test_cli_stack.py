"""The command line against the real local stack: the shapes that scripts rely on, and the demo."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pypdf
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples" / "files"
CITATION_KEYS = {
    "document", "document_id", "page", "page_label", "quote", "verified", "boxes", "char_start", "char_end",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Program:
    """The installed command on one data directory."""

    data: Path

    def __call__(self, *arguments: str, status: int = 0, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "app.cli", *arguments, "--data", str(self.data)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FULLREAD_URL")}
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert done.returncode == status, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *arguments: str, status: int = 0) -> Any:
        return json.loads(self(*arguments, "--json", status=status).stdout)


@pytest.fixture(scope="module")
def fullread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    program = Program(tmp_path_factory.mktemp("cli") / "data")
    program("up", "--detach")
    yield program
    program("down")


@pytest.fixture(scope="module")
def samples(fullread: Program) -> list[dict[str, Any]]:
    """The sample files, ingested."""
    found: list[dict[str, Any]] = fullread.json("ingest", str(SAMPLES), "--collection", "samples", status=3)["files"]
    return found


def test_ingest_says_what_became_of_each_file(samples: list[dict[str, Any]]) -> None:
    assert {file["name"] for file in samples} == {path.relative_to(SAMPLES).as_posix() for path in SAMPLES.rglob("*.*")}
    assert [file["name"] for file in samples if file["state"] == "needs_ocr"] == ["signed-addendum.pdf"]
    read = [file for file in samples if file["state"] != "needs_ocr"]
    assert all(file["state"] == "indexed" and file["document_id"] for file in read)
    assert all(file["pages_total"] == file["pages_indexed"] > 0 for file in read)


def test_what_cannot_be_read_is_three(fullread: Program, tmp_path: Path) -> None:
    (tmp_path / "empty.pdf").touch()
    (tmp_path / "fine.txt").write_text("The ferry to Lligall leaves at nine.")
    files = fullread.json("ingest", str(tmp_path), str(tmp_path / "absent"), "-c", "mixed", status=3)["files"]
    assert [(file["name"], file["state"], file["code"]) for file in files] == [
        ("empty.pdf", "failed", "empty"), ("fine.txt", "indexed", None), ("absent", "failed", "unreadable"),
    ]  # fmt: skip
    assert fullread.json("documents", "-c", "mixed", "--state", "failed")["documents"][0]["name"] == "empty.pdf"
    again = fullread.json("retry", "empty.pdf", "-c", "mixed", status=3)["documents"]
    assert again[0]["code"] == "empty"


@pytest.mark.usefixtures("samples")
def test_an_answer_is_proved_on_the_page_that_it_names(fullread: Program) -> None:
    answer = fullread.json(
        "ask", "Which laws govern the software maintenance agreement?", "-c", "samples", "--route", "retrieval"
    )
    assert any(citation["verified"] for citation in answer["citations"])
    assert answer["route"] == "retrieval"
    assert answer["coverage"]["documents_total"] == len([path for path in SAMPLES.rglob("*.*") if path.is_file()])
    assert {"counted", "engine"} <= answer["tokens"].keys()
    for citation in answer["citations"]:
        assert citation.keys() >= CITATION_KEYS
        if citation["document"].endswith(".pdf"):
            page = pypdf.PdfReader(SAMPLES / citation["document"]).pages[citation["page"] - 1].extract_text()
            assert " ".join(citation["quote"].split()) in " ".join(page.split())
            assert all(x0 < x1 <= 595 and y0 < y1 <= 842 for x0, y0, x1, y1 in citation["boxes"])


@pytest.mark.usefixtures("samples")
def test_nothing_found_is_four(fullread: Program) -> None:
    answer = fullread.json(
        "ask", "Who is the director of the Museum of Salt and Tides?", "-c", "samples", "--route", "retrieval", status=4
    )
    assert (answer["state"], answer["citations"]) == ("not_found", [])


@pytest.mark.usefixtures("samples")
def test_search_and_delete(fullread: Program) -> None:
    def found() -> list[dict[str, Any]]:
        hits: list[dict[str, Any]] = fullread.json("search", "salt pans relief", "-c", "samples", "--limit", "3")[
            "hits"
        ]
        return hits

    hits = found()
    assert 0 < len(hits) <= 3
    assert all(hit.keys() >= {"document", "document_id", "page", "text", "score"} for hit in hits)
    assert "price-list.xlsx" in {hit["document"] for hit in hits}
    fullread("delete", "price-list.xlsx", "--collection", "samples", "--yes")
    assert "price-list.xlsx" not in {hit["document"] for hit in found()}
    fullread.json("ingest", str(SAMPLES), "-c", "samples", status=3)
    assert "price-list.xlsx" in {hit["document"] for hit in found()}


@pytest.mark.usefixtures("samples")
def test_a_viewers_key_reads_and_does_not_write(fullread: Program) -> None:
    key = fullread.json("keys", "create", "reader", "--scope", "read")
    assert fullread("documents", "-c", "samples", "--api-key", key["token"]).stdout.count("indexed") >= 10
    refused = fullread.json("delete", "--all", "-c", "samples", "--yes", "--api-key", key["token"], status=1)
    assert refused["code"] == "scope_forbids"
    fullread("keys", "revoke", key["id"], "--yes")
    assert fullread.json("documents", "-c", "samples", "--api-key", key["token"], status=1)["status"] == 401


def test_the_demo_proves_its_answers_and_stops(tmp_path: Path) -> None:
    demo = Program(tmp_path / "demo")
    shown = demo("demo", "--exit", timeout_s=800).stdout
    assert shown.count("✓ verified:") >= 3
    assert demo.json("status", status=1)["running"] is False
