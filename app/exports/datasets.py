"""The datasets for reporting tools: their columns, and the SQL of one page of them under the caller's rights."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    CompoundSelect,
    DateTime,
    Double,
    FromClause,
    Select,
    Text,
    Uuid,
    and_,
    cast,
    column,
    false,
    func,
    literal,
    null,
    or_,
    select,
    table,
    true,
    union,
    union_all,
)
from sqlalchemy.orm import InstrumentedAttribute
from sqlalchemy.types import TypeEngine

from app.answering.tables import Answer, CitationRow
from app.documents import access
from app.documents.tables import Collection, CollectionGrant, Document, DocumentVersion
from app.identity.permissions import Principal

#: A cell of Excel holds 32,767 characters, one of which may be the guard of a CSV file.
TEXT_CHARS = 32_766


class Kind(StrEnum):
    """What a column holds; only text can carry what somebody wrote."""

    ID = "id"
    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIME = "time"


#: A time as a bound value of type timestamptz: as a plain timestamp it would be read in the session's time zone.
Moment = ColumnElement[datetime]

_SQL_TYPES: dict[Kind, TypeEngine[Any]] = {
    Kind.ID: Uuid(),
    Kind.TEXT: Text(),
    Kind.INTEGER: BigInteger(),
    Kind.NUMBER: Double(),
    Kind.BOOLEAN: Boolean(),
    Kind.TIME: DateTime(timezone=True),
}


@dataclass(frozen=True, slots=True)
class Column:
    """A flat column of a dataset and the SQL that it comes from."""

    name: str
    kind: Kind
    sql: Any


@dataclass(frozen=True, slots=True)
class Part:
    """Which rows of a dataset are wanted: what `actor` may see after the id `after`, changed since `since`.

    `renamed` are the collections with a new name since then: it shows in rows that did not change themselves.
    """

    actor: Principal
    after: UUID | None
    since: datetime | None
    renamed: tuple[UUID, ...]
    limit: int


@dataclass(frozen=True, slots=True)
class Dataset:
    """A flat table for reporting. The first column is the id that a walk is ordered by."""

    name: str
    columns: tuple[Column, ...]
    source: FromClause
    visible: Callable[[Principal], ColumnElement[bool]]
    changed: Callable[[Moment, Part], ColumnElement[bool]]
    gone: Callable[[Moment, Principal], tuple[Select[UUID, datetime], ...]]


_tombstones = table(
    "bi_tombstones",
    column("dataset", Text()),
    column("id", Uuid()),
    column("collection_id", Uuid()),
    column("user_id", Uuid()),
    column("deleted_at", DateTime(timezone=True)),
)


def statement(dataset: Dataset, part: Part) -> Select[Any] | CompoundSelect[Any]:
    """Rows of one page, ordered by id. With `since` also what is deleted: the id, the time and nothing else."""
    key = dataset.columns[0].sql
    shown = [_shown(each) for each in dataset.columns]
    live = select(*shown).select_from(dataset.source).where(dataset.visible(part.actor))
    if part.since is None:
        return _page(live, key, part)
    since = literal(part.since, DateTime(timezone=True))
    live = live.where(dataset.changed(since, part))
    # Each arm ends at the limit of the page: the merge never sorts more than a few pages.
    arms = [_page(live, key, part)]
    for gone in dataset.gone(since, part.actor):
        ids = gone.subquery()
        blank = select(*(_blank(each, ids) for each in dataset.columns))
        arms.append(_page(blank, ids.c.id, part))
    return union_all(*arms).order_by(dataset.columns[0].name).limit(part.limit)


def _shown(each: Column) -> ColumnElement[Any]:
    expression = func.left(each.sql, TEXT_CHARS) if each.kind is Kind.TEXT else cast(each.sql, _SQL_TYPES[each.kind])
    return expression.label(each.name)


def _blank(each: Column, ids: FromClause) -> ColumnElement[Any]:
    known: dict[str, ColumnElement[Any]] = {"id": ids.c.id, "updated_at": ids.c.updated_at, "is_deleted": true()}
    return known.get(each.name, cast(null(), _SQL_TYPES[each.kind])).label(each.name)


def _page(query: Select[Any], key: ColumnElement[UUID], part: Part) -> Select[Any]:
    bounded = query if part.after is None else query.where(key > part.after)
    return bounded.order_by(key).limit(part.limit)


# --- documents -----------------------------------------------------------------------------------------------------

_document_changed = func.greatest(Document.updated_at, DocumentVersion.updated_at, Collection.renamed_at)


def _visible_documents(actor: Principal) -> ColumnElement[bool]:
    return and_(Document.deleted_at.is_(None), Document.collection_id.in_(access.visible_collection_ids(actor)))


def _changed_documents(since: Moment, part: Part) -> ColumnElement[bool]:
    # By indexes: the greatest of three times has none.
    ids: list[Select[UUID]] = [
        select(Document.id).where(Document.updated_at >= since),
        select(DocumentVersion.document_id).where(DocumentVersion.updated_at >= since),
    ]
    if part.renamed:
        ids.append(select(Document.id).where(Document.collection_id.in_(part.renamed)))
    return and_(Document.id.in_(union(*ids)), _document_changed >= since)


def _gone_documents(since: Moment, actor: Principal) -> tuple[Select[UUID, datetime], ...]:
    deleted = select(Document.id, Document.updated_at.label("updated_at")).where(
        Document.deleted_at.is_not(None), Document.updated_at >= since
    )
    erased = _buried("documents", since)
    if actor.sees_all_collections:
        return deleted, erased
    # A deleted collection is not visible any more: who saw it learns the ids of what went with it, nothing else.
    seen = union(
        select(CollectionGrant.collection_id).where(CollectionGrant.user_id == actor.user_id),
        select(_tombstones.c.collection_id).where(
            _tombstones.c.dataset == "grants", _tombstones.c.user_id == actor.user_id
        ),
    )
    return deleted.where(Document.collection_id.in_(seen)), erased.where(_tombstones.c.collection_id.in_(seen))


def _buried(name: str, since: Moment) -> Select[UUID, datetime]:
    found: Select[UUID, datetime] = select(_tombstones.c.id, _tombstones.c.deleted_at.label("updated_at"))
    return found.where(_tombstones.c.dataset == name, _tombstones.c.deleted_at >= since)


DOCUMENTS = Dataset(
    name="documents",
    columns=(
        Column("id", Kind.ID, Document.id),
        Column("collection_id", Kind.ID, Document.collection_id),
        Column("collection", Kind.TEXT, Collection.name),
        Column("name", Kind.TEXT, Document.name),
        Column("state", Kind.TEXT, func.coalesce(DocumentVersion.state, "received")),
        Column("code", Kind.TEXT, DocumentVersion.code),
        Column("media_type", Kind.TEXT, DocumentVersion.media_type),
        Column("language", Kind.TEXT, DocumentVersion.language),
        Column("version_number", Kind.INTEGER, DocumentVersion.number),
        Column("sha256", Kind.TEXT, DocumentVersion.sha256),
        Column("size_bytes", Kind.INTEGER, DocumentVersion.size_bytes),
        Column("pages_total", Kind.INTEGER, DocumentVersion.pages_total),
        Column("pages_indexed", Kind.INTEGER, DocumentVersion.pages_indexed),
        Column("created_at", Kind.TIME, Document.created_at),
        Column("updated_at", Kind.TIME, _document_changed),
        Column("is_deleted", Kind.BOOLEAN, false()),
    ),
    source=Document.__table__.join(Collection.__table__, Collection.id == Document.collection_id).outerjoin(
        DocumentVersion.__table__, DocumentVersion.id == Document.latest_version_id
    ),
    visible=_visible_documents,
    changed=_changed_documents,
    gone=_gone_documents,
)

# --- answers, their citations, what they cost -----------------------------------------------------------------------

_answers_of_collections = Answer.__table__.join(Collection.__table__, Collection.id == Answer.collection_id)
_answer_changed = func.greatest(Answer.updated_at, Collection.renamed_at)


def _visible_answers(actor: Principal) -> ColumnElement[bool]:
    """The caller's own; an administrator sees all of the tenant. Of collections that it sees (still)."""
    visible = Answer.collection_id.in_(access.visible_collection_ids(actor))
    return visible if actor.sees_all_collections else and_(visible, Answer.user_id == actor.user_id)


def _changed_answers(since: Moment, part: Part) -> ColumnElement[bool]:
    changed = Answer.updated_at >= since
    return or_(changed, Answer.collection_id.in_(part.renamed)) if part.renamed else changed


def _own(name: str, since: Moment, actor: Principal) -> tuple[Select[UUID, datetime], ...]:
    found = _buried(name, since)
    return (found if actor.sees_all_collections else found.where(_tombstones.c.user_id == actor.user_id),)


def _citations(*, verified: bool = False) -> ColumnElement[int]:
    counted = select(func.count()).select_from(CitationRow).where(CitationRow.answer_id == Answer.id)
    if verified:
        counted = counted.where(CitationRow.verified)
    return counted.correlate(Answer).scalar_subquery()


def _counted(facts: InstrumentedAttribute[dict[str, Any]], name: str) -> ColumnElement[int]:
    """A number out of a JSON column."""
    number: ColumnElement[int] = facts[name].as_integer()
    return number


ANSWERS = Dataset(
    name="answers",
    columns=(
        Column("id", Kind.ID, Answer.id),
        Column("collection_id", Kind.ID, Answer.collection_id),
        Column("collection", Kind.TEXT, Collection.name),
        Column("user_id", Kind.ID, Answer.user_id),
        Column("question", Kind.TEXT, Answer.question),
        Column("state", Kind.TEXT, Answer.state),
        Column("route", Kind.TEXT, Answer.route),
        Column("form", Kind.TEXT, Answer.form),
        Column("text", Kind.TEXT, Answer.text),
        Column("documents_total", Kind.INTEGER, _counted(Answer.coverage, "documents_total")),
        Column("documents_read", Kind.INTEGER, _counted(Answer.coverage, "documents_read")),
        Column("pages_total", Kind.INTEGER, _counted(Answer.coverage, "pages_total")),
        Column("pages_read", Kind.INTEGER, _counted(Answer.coverage, "pages_read")),
        Column(
            "pages_not_read",
            Kind.INTEGER,
            _counted(Answer.coverage, "pages_total") - _counted(Answer.coverage, "pages_read"),
        ),
        Column("citations", Kind.INTEGER, _citations()),
        Column("citations_verified", Kind.INTEGER, _citations(verified=True)),
        Column("seconds", Kind.NUMBER, Answer.seconds),
        Column("created_at", Kind.TIME, Answer.created_at),
        Column("updated_at", Kind.TIME, _answer_changed),
        Column("is_deleted", Kind.BOOLEAN, false()),
    ),
    source=_answers_of_collections,
    visible=_visible_answers,
    changed=_changed_answers,
    gone=lambda since, actor: _own("answers", since, actor),
)

CITATIONS = Dataset(
    name="citations",
    columns=(
        Column("id", Kind.ID, CitationRow.id),
        Column("answer_id", Kind.ID, CitationRow.answer_id),
        Column("collection_id", Kind.ID, Answer.collection_id),
        Column("ordinal", Kind.INTEGER, CitationRow.ordinal),
        Column("document_id", Kind.ID, CitationRow.document_id),
        Column("document", Kind.TEXT, CitationRow.document_name),
        Column("page", Kind.INTEGER, CitationRow.page),
        Column("page_label", Kind.TEXT, CitationRow.page_label),
        Column("quote", Kind.TEXT, CitationRow.quote),
        Column("verified", Kind.BOOLEAN, CitationRow.verified),
        Column("created_at", Kind.TIME, Answer.created_at),
        Column("updated_at", Kind.TIME, CitationRow.updated_at),
        Column("is_deleted", Kind.BOOLEAN, false()),
    ),
    source=CitationRow.__table__.join(Answer.__table__, Answer.id == CitationRow.answer_id),
    visible=_visible_answers,
    changed=lambda since, _: CitationRow.updated_at >= since,
    gone=lambda since, actor: _own("citations", since, actor),
)

USAGE = Dataset(
    name="usage",
    columns=(
        Column("id", Kind.ID, Answer.id),
        Column("at", Kind.TIME, Answer.created_at),
        Column("user_id", Kind.ID, Answer.user_id),
        Column("collection_id", Kind.ID, Answer.collection_id),
        Column("model", Kind.TEXT, Answer.model),
        Column("route", Kind.TEXT, Answer.route),
        Column("state", Kind.TEXT, Answer.state),
        Column("prompt_tokens", Kind.INTEGER, _counted(Answer.tokens, "engine")),
        Column("counted_tokens", Kind.INTEGER, _counted(Answer.tokens, "counted")),
        Column("cached_tokens", Kind.INTEGER, _counted(Answer.tokens, "cached")),
        Column("output_tokens", Kind.INTEGER, _counted(Answer.tokens, "output")),
        Column("seconds", Kind.NUMBER, Answer.seconds),
        Column("updated_at", Kind.TIME, Answer.updated_at),
        Column("is_deleted", Kind.BOOLEAN, false()),
    ),
    source=Answer.__table__,
    visible=_visible_answers,
    changed=lambda since, _: Answer.updated_at >= since,
    # One tombstone of an answer serves both: they are two views of one row.
    gone=lambda since, actor: _own("answers", since, actor),
)

DATASETS = (DOCUMENTS, ANSWERS, CITATIONS, USAGE)
