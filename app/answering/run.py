"""The run record of an answer: what it was made from, so that it can be repeated and compared."""

import hashlib
from typing import Any
from uuid import UUID

from app import __version__
from app.answering import chat, runs
from app.answering.corpus import Scope
from app.answering.record import Draft
from app.answering.runs import DocumentRecord, ModelRecord, PromptRecord, RunRecord, SnapshotRecord
from app.answering.sections import Plan
from app.answering.tools import AnswerTools


def record_of(tools: AnswerTools, draft: Draft, scope: Scope, plan: Plan | None) -> dict[str, Any]:
    """The record as stored. Equal for two equal questions about unchanged documents."""
    profile = tools.profile
    made = RunRecord(
        fullread=__version__,
        question_sha256=hashlib.sha256(draft.question.encode()).hexdigest(),
        asked_route=draft.asked_route,
        route=draft.route,
        by_document=draft.by_document,
        selection=frozenset(draft.document_ids),
        model=ModelRecord(
            id=profile.model,
            digest=profile.digest or None,
            window_tokens=profile.window_tokens,
            answer_form=profile.answer_form,
        ),
        embeddings_model=tools.embeddings_model,
        settings={
            "section_tokens": profile.section_tokens,
            "context_tokens": tools.context_tokens,
            "full_pass_tokens": tools.full_pass_tokens,
            "dense_weight": tools.search.dense_weight,
            "temperature": chat.TEMPERATURE,
            "seed": chat.SEED,
        },
        snapshot=None
        if plan is None
        else SnapshotRecord(digest=plan.snapshot.digest, sections=len(plan.sections), tokens=plan.tokens),
        prompts=tuple(PromptRecord(use.purpose, use.sha256, use.tokens) for use in draft.meter.prompts),
        documents=tuple(
            DocumentRecord(
                id=UUID(document.document_id),
                name=document.name,
                version_id=UUID(document.version_id) if document.version_id else None,
                version_number=document.version_number,
                sha256=document.sha256,
                pages=document.pages_total,
            )
            for document in scope.documents
        ),
    )
    return runs.as_json(made)
