"""Shapes of answers, their events and jobs, as the API sends them."""

from typing import Any

from tests.support.scripted_api import AT

Json = dict[str, Any]
Step = tuple[str, Json]
ANSWER = "0190a000-0000-7000-8000-000000000001"
JOB = "0190a000-0000-7000-8000-000000000002"


def citation(**facts: Any) -> Json:
    return {
        "ordinal": 1, "document": "contracts/msa.pdf", "document_id": "d", "page": 4, "page_label": "3",
        "quote": "The cap is\nEUR 5.", "verified": True, "boxes": [[1.0, 2.0, 3.0, 4.0]], "char_start": 1,
        "char_end": 2, "claim": "", **facts,
    }  # fmt: skip


def skipped(document: str, pages: int | None, reason: str, *, whole: bool = True) -> Json:
    return {"document": document, "document_id": document, "pages": pages, "reason": reason, "whole_document": whole}


def answer(**facts: Any) -> Json:
    coverage = {
        "documents_total": 2, "documents_read": 1, "pages_total": 9, "pages_read": 2, "sentence": "Read 2 pages.",
        "skipped": [skipped("scan.pdf", 3, "needs_ocr", whole=False)],
    }  # fmt: skip
    return {
        "id": ANSWER, "state": "succeeded", "form": "extractive", "text": "It is EUR 5.\n\n“The cap is EUR 5.” [1]",
        "route": "retrieval", "route_reasons": [], "citations": [citation()], "coverage": coverage,
        "tokens": {"counted": 1, "engine": 1}, "model": "m", "seconds": 0.1, "question": "What is the cap?",
        "created_at": AT, "collection_id": "c", **facts,
    }  # fmt: skip


def events(final: Json, *steps: Step) -> list[Step]:
    return [("status", {"phase": "searching", "answer_id": ANSWER}), *steps, ("answer", final)]


def routed(route: str, *reasons: str, **facts: Any) -> Step:
    return "status", {"phase": "routed", "route": route, "reasons": list(reasons), **facts}


def reading(section: int, sections: int, document: str) -> Step:
    return "status", {"phase": "reading", "section": section, "sections": sections, "document": document}


def queued(position: int) -> Step:
    return "status", {"phase": "queued", "job_id": JOB, "position": position}


def verdict(document: str, said: str, *ordinals: int, proved: bool = True, note: str = "") -> Json:
    return {
        "document": document, "document_id": document, "version_id": "v", "verdict": said, "proved": proved,
        "ordinals": list(ordinals), "note": note,
    }  # fmt: skip


def job(**facts: Any) -> Json:
    return {
        "id": JOB, "kind": "analysis", "state": "queued", "subject_id": ANSWER, "collection_id": "c",
        "progress": {"section": 3, "sections": 11}, "attempt": 1, "code": None, "message": None, "created_at": AT,
        "started_at": None, "finished_at": None, **facts,
    }  # fmt: skip
