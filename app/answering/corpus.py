"""What a question is asked of: everything in the collection that its caller may see, of one moment, and its size."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from app.answering import sources
from app.answering.coverage import Coverage, DocumentPages
from app.answering.record import Draft
from app.answering.sections import Plan
from app.answering.tools import AnswerTools
from app.core.db import UnitOfWork
from app.core.errors import InvalidInputError
from app.documents import access, snapshots
from app.documents.snapshots import Snapshot
from app.identity.permissions import Action, Principal
from app.retrieval.router import CorpusSize, Limits

#: For estimates before anything is counted: PDF text of the three languages lies between 3.2 and 4.2.
_CHARS_PER_TOKEN = 3.6
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Scope:
    """Everything in the collection. `selected`: ids of the documents that were chosen, None for all."""

    documents: tuple[DocumentPages, ...]
    selected: frozenset[str] | None


def scope(tools: AnswerTools, actor: Principal, draft: Draft) -> tuple[Scope, CorpusSize]:
    """The scope of a question and its size, after the rights were checked. Raises NotFoundError, InvalidInputError."""
    with tools.database.tenant(actor.tenant_id) as uow:
        access.open_collection(uow, actor, draft.collection_id, Action.ASK)
        documents = tuple(sources.in_scope(uow, draft.collection_id))
        found = Scope(documents, _selected(documents, draft.document_ids))
        return found, _size(uow, found)


def _size(uow: UnitOfWork, found: Scope) -> CorpusSize:
    """Documents, pages and estimated tokens of what can be read."""
    readable = [
        UUID(document.version_id)
        for document in found.documents
        if document.searchable and (found.selected is None or document.document_id in found.selected)
    ]
    pages, chars = snapshots.extent(uow, readable)
    return CorpusSize(documents=len(readable), pages=pages, tokens=round(chars / _CHARS_PER_TOKEN))


def frozen(tools: AnswerTools, actor: Principal, draft: Draft) -> tuple[Scope, Snapshot]:
    """Scope and snapshot of the same moment: a document that is indexed between the two queries makes it try again."""
    chosen = set(draft.document_ids) or None
    with tools.database.tenant(actor.tenant_id) as uow:
        access.open_collection(uow, actor, draft.collection_id, Action.ASK)
        before = sources.in_scope(uow, draft.collection_id)
        for _ in range(_TRIES):
            taken = snapshots.take(uow, draft.collection_id, chosen)
            after = sources.in_scope(uow, draft.collection_id)
            if before == after:
                return Scope(tuple(after), _selected(after, draft.document_ids)), taken
            before = after
    raise snapshots.changed()


def _selected(documents: Sequence[DocumentPages], document_ids: Sequence[UUID]) -> frozenset[str] | None:
    if not document_ids:
        return None
    selected = frozenset(str(document_id) for document_id in document_ids)
    if unknown := selected - {document.document_id for document in documents}:
        raise InvalidInputError(
            "unknown_documents", f"{len(unknown)} of the selected documents are not in this collection."
        )
    return selected


def limits(tools: AnswerTools) -> Limits:
    """What the engine can take, for the router."""
    return Limits(
        context_tokens=tools.context_tokens,
        window_tokens=tools.profile.window_tokens,
        section_tokens=tools.profile.section_tokens,
        full_pass_tokens=tools.full_pass_tokens,
        prefill_tokens_per_s=tools.prefill_tokens_per_s,
    )


def split_note(plan: Plan, found: Coverage) -> list[str]:
    """Discloses that a corpus was split, and what one pass did not take."""
    notes = []
    if len(plan.sections) > 1:
        notes.append(
            f"The text was read in {len(plan.sections)} sections ({plan.tokens:,} prompt tokens), each by itself: what"
            " follows only from pages of two sections together may be missed."
        )
    over = sum(entry.pages or 0 for entry in found.skipped if entry.reason == "budget")
    if over:
        notes.append(f"{over:,} pages are over the budget of one full pass (FULLREAD_FULL_PASS_TOKENS).")
    return notes
