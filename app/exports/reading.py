"""One page of a walk, read in the caller's transaction: bounded in rows, in size and in time."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import DateTime, func, literal, select, text
from sqlalchemy.exc import OperationalError

from app.core.db import UnitOfWork
from app.core.errors import UnavailableError
from app.documents.tables import Collection
from app.exports.csv_files import Cell
from app.exports.cursors import Walk
from app.exports.datasets import Dataset, Kind, Part, statement
from app.identity.permissions import Principal

#: `as_of` lies this long before the walk: what was changed before it began and committed after it comes again.
MARGIN = timedelta(minutes=2)
TIMEOUT_S = 30
RETRY_AFTER_S = 5
#: A page ends early when its text is over this: tools read a page whole.
PAGE_CHARS = 8 * 1024 * 1024
_FETCHED_ROWS = 500
_QUERY_CANCELLED = "57014"

Row = tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Rows in the order of the dataset's columns; `last` is the id to go on after, None at the end of the walk."""

    rows: Sequence[Row]
    last: UUID | None


def begin(uow: UnitOfWork, dataset: Dataset, since: datetime | None) -> Walk:
    """A new walk. The database's clock, which also stamped the rows."""
    at = uow.session.execute(select(func.now())).scalar_one()
    return Walk(dataset=dataset.name, as_of=at.astimezone(UTC) - MARGIN, since=since)


def read(
    uow: UnitOfWork, actor: Principal, dataset: Dataset, walk: Walk, limit: int, *, timeout_s: float = TIMEOUT_S
) -> Page:
    """The next page of a walk. Raises UnavailableError when the database takes longer than `timeout_s`."""
    try:
        # Of a tenant that has just grown the planner expects a handful of rows, and would compare each of its answers
        # with each of its citations in memory: 1.5 s instead of 0.02 s for 5,000 of 10,000 rows.
        uow.session.execute(
            text("select set_config('statement_timeout', :ms, true), set_config('enable_material', 'off', true)"),
            {"ms": str(round(timeout_s * 1000))},
        )
        return _read(uow, dataset, _part(uow, actor, walk, limit + 1), limit)
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) != _QUERY_CANCELLED:
            raise
        raise UnavailableError(
            "bi_timeout",
            f"The rows could not be read within {timeout_s:g} seconds. Try again, with a smaller limit if it persists.",
            retry_after_s=RETRY_AFTER_S,
        ) from error


def _part(uow: UnitOfWork, actor: Principal, walk: Walk, limit: int) -> Part:
    renamed: tuple[UUID, ...] = ()
    if walk.since is not None:
        since = literal(walk.since, DateTime(timezone=True))
        renamed = tuple(uow.session.scalars(select(Collection.id).where(Collection.renamed_at >= since)))
    return Part(actor=actor, after=walk.after, since=walk.since, renamed=renamed, limit=limit)


def _read(uow: UnitOfWork, dataset: Dataset, part: Part, limit: int) -> Page:
    """Rows as they stream in; one more than the page holds was asked for, and says whether there is another page."""
    texts = [place for place, column in enumerate(dataset.columns) if column.kind is Kind.TEXT]
    times = [place for place, column in enumerate(dataset.columns) if column.kind is Kind.TIME]
    rows: list[Row] = []
    chars = 0
    last: UUID | None = None
    with uow.session.execute(statement(dataset, part), execution_options={"yield_per": _FETCHED_ROWS}) as found:
        for row in found:
            if rows and (len(rows) == limit or chars > PAGE_CHARS):
                return Page(rows, last)
            cells: list[Any] = list(row)
            for place in times:
                cells[place] = cells[place] and cells[place].astimezone(UTC)
            chars += sum(len(cells[place] or "") for place in texts)
            rows.append(tuple(cells))
            last = cells[0]
    return Page(rows, None)
