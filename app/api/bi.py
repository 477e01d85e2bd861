"""Routes for reporting tools: each dataset as flat rows in pages, as JSON or as CSV, with Bearer or Basic."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from urllib.parse import urlencode
from uuid import UUID

import orjson
from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, create_model

from app.api.dependencies import ReportingDep, ServicesDep
from app.audit import events
from app.bootstrap import Services
from app.core.clock import now
from app.exports import csv_files, cursors, reading
from app.exports.cursors import Walk
from app.exports.datasets import DATASETS, Dataset, Kind
from app.exports.reading import Page
from app.identity.permissions import Action, Principal, require

router = APIRouter(tags=["reporting"])

Format = Literal["json", "csv"]
CSV_TYPE = "text/csv"
#: In a CSV answer there is no other place for it.
AS_OF_HEADER = "fullread-as-of"

_PYTHON_TYPES: dict[Kind, Any] = {
    Kind.ID: UUID,
    Kind.TEXT: str,
    Kind.INTEGER: int,
    Kind.NUMBER: float,
    Kind.BOOLEAN: bool,
    Kind.TIME: datetime,
}
_NEVER_NULL = frozenset({"id", "updated_at", "is_deleted"})


def _iso(value: object) -> object:
    # A bare number would be taken for seconds since 1970, and 2026 for the year 1970.
    if not isinstance(value, str) or "-" not in value[1:]:
        raise ValueError("a time in ISO 8601 with its zone is needed, as 2026-01-31T00:00:00Z")
    return value


def _utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("the time is out of range") from error


class BiQuery(BaseModel):
    """What may stand in the address; anything else is refused."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(default=1000, ge=1, le=5000, description="rows of the page")
    updated_since: Annotated[AwareDatetime, BeforeValidator(_iso), AfterValidator(_utc)] | None = Field(
        default=None, description="only rows changed at or after this time, and what was deleted"
    )
    cursor: str | None = Field(default=None, max_length=400, description="from `next` of the page before")
    format: Format | None = Field(default=None, description="default: by the header Accept, else json")
    bom: bool = Field(default=False, description="CSV only: a byte order mark first, for old versions of Excel")


@dataclass(frozen=True, slots=True)
class _Answered:
    """A page with what the caller asked for."""

    dataset: Dataset
    query: BiQuery
    walk: Walk
    page: Page
    next: str | None


def _row_model(dataset: Dataset) -> Any:
    """The page's shape for the OpenAPI document."""
    fields: dict[str, Any] = {}
    for column in dataset.columns:
        kind = _PYTHON_TYPES[column.kind]
        fields[column.name] = kind if column.name in _NEVER_NULL else kind | None
    name = f"Bi{dataset.name.capitalize()}"
    row = create_model(f"{name}Row", **fields)
    return create_model(f"{name}Out", items=list[row], next=str | None, as_of=datetime)  # type: ignore[valid-type]


def _add(dataset: Dataset) -> None:
    def read(
        request: Request,
        query: Annotated[BiQuery, Query()],
        services: ServicesDep,
        actor: ReportingDep,
        accept: Annotated[str, Header()] = "*/*",
    ) -> Response:
        form = query.format or _preferred(accept)
        answered = _read(services, actor, dataset, query, form, str(request.scope["path"]))
        headers = {"vary": "accept"}
        if answered.next is not None:
            headers["link"] = f'<{answered.next}>; rel="next"'
        return _csv(answered, headers) if form == "csv" else _json(answered, headers)

    router.add_api_route(
        f"/bi/{dataset.name}",
        read,
        methods=["GET"],
        name=f"bi_{dataset.name}",
        summary=f"The dataset {dataset.name}, for reporting tools",
        description="Flat rows ordered by id; follow `next`. Give `as_of` back as `updated_since` at the next refresh.",
        response_model=_row_model(dataset),
        responses={200: {"content": {CSV_TYPE: {}}}},
    )


def _preferred(accept: str) -> Format:
    """CSV when the header names it, and JSON with no greater weight."""
    weights: dict[str, float] = {}
    for item in accept.lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        weight = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        try:
            weights[name] = float(weight)
        except ValueError:
            weights[name] = 0.0
    csv = weights.get(CSV_TYPE, 0.0)
    return "csv" if csv > 0 and csv >= weights.get("application/json", 0.0) else "json"


def _read(services: Services, actor: Principal, dataset: Dataset, query: BiQuery, form: Format, path: str) -> _Answered:
    require(actor, Action.READ)
    key = services.settings.secret_key.get_secret_value().encode()
    begun = None
    if query.cursor is not None:
        begun = cursors.unseal(query.cursor, key, actor, dataset.name, since=query.updated_since, at=now())
    with services.database.tenant(actor.tenant_id) as uow:
        walk = begun or reading.begin(uow, dataset, query.updated_since)
        page = reading.read(uow, actor, dataset, walk, query.limit)
        if begun is None:
            # Last: the audit trail is locked for the tenant from here to the commit.
            events.append(
                uow, actor.actor, "bi.read", "dataset", dataset.name, request_id=actor.request_id, format=form
            )
    further = None
    if page.last is not None:
        more = Walk(walk.dataset, walk.as_of, walk.since, page.last)
        further = _next(services.settings.public_url, path, query, form, cursors.seal(more, key, actor), walk.since)
    return _Answered(dataset, query, walk, page, further)


def _next(public_url: str, path: str, query: BiQuery, form: Format, cursor: str, since: datetime | None) -> str:
    """Address of the next page: from the settings, because whoever sends the request chooses its Host header."""
    parameters: dict[str, str] = {"format": form, "limit": str(query.limit)}
    if since is not None:
        parameters["updated_since"] = _shown(since)
    if query.bom:
        parameters["bom"] = "true"
    return f"{public_url.rstrip('/')}{path}?{urlencode({**parameters, 'cursor': cursor})}"


def _shown(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def _json(answered: _Answered, headers: dict[str, str]) -> Response:
    names = [column.name for column in answered.dataset.columns]
    body = {
        "items": [dict(zip(names, row, strict=True)) for row in answered.page.rows],
        "next": answered.next,
        "as_of": answered.walk.as_of,
    }
    return Response(orjson.dumps(body, option=orjson.OPT_UTC_Z), media_type="application/json", headers=headers)


def _csv(answered: _Answered, headers: dict[str, str]) -> Response:
    names = [column.name for column in answered.dataset.columns]
    headers[AS_OF_HEADER] = _shown(answered.walk.as_of)
    headers["content-disposition"] = f'attachment; filename="{answered.dataset.name}.csv"'
    content = csv_files.document(names, answered.page.rows, bom=answered.query.bom)
    return Response(content, media_type=f"{CSV_TYPE}; charset=utf-8; header=present", headers=headers)


for _dataset in DATASETS:
    _add(_dataset)
