"""Request and response bodies. Unknown fields are refused: nobody sets what the caller may not set."""

from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, SecretStr, StringConstraints

from app.documents.library import DocumentView
from app.identity.permissions import Role, Scope

T = TypeVar("T")

Text = Annotated[str, StringConstraints(max_length=2000, pattern=r"^[^\x00]*$")]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00]*$")]
Email = Annotated[str, StringConstraints(min_length=3, max_length=254, pattern=r"^[^@\s\x00]+@[^@\s\x00]+$")]


def _is_text(value: SecretStr) -> SecretStr:
    # A lone surrogate passes as a string and then can not be hashed; NUL is no text anywhere.
    if any(c == "\0" or 0xD800 <= ord(c) <= 0xDFFF for c in value.get_secret_value()):
        raise ValueError("a password holds only valid characters")
    return value


Password = Annotated[SecretStr, Field(max_length=1024), AfterValidator(_is_text)]


class Body(BaseModel):
    """Base of request bodies."""

    model_config = ConfigDict(extra="forbid")


class Items(BaseModel, Generic[T]):
    """One page of a list; `next` is the cursor of the page after it, null on the last."""

    items: list[T]
    next: str | None = None


class Login(Body):
    """Sign-in with e-mail and password; `tenant` (an id) when the address exists in several tenants."""

    email: Email
    password: Password
    tenant: UUID | None = None


class UserOut(BaseModel):
    """A user as shown."""

    id: UUID
    email: str
    display_name: str
    role: Role
    created_at: datetime
    disabled_at: datetime | None


class LoginOut(BaseModel):
    """The session token, shown once."""

    token: str
    expires_at: datetime | None


class MeOut(BaseModel):
    """Who the caller is."""

    tenant_id: UUID
    user_id: UUID
    email: str
    role: Role
    scopes: list[Scope] | None


class UserCreate(Body):
    """A new user."""

    email: Email
    password: Password
    role: Role = Role.VIEWER
    display_name: Text = ""


class UserChange(Body):
    """What to change of a user; absent fields stay."""

    role: Role | None = None
    disabled: bool | None = None
    password: Password | None = None


class ApiKeyCreate(Body):
    """A new API key of the caller."""

    name: Name
    scopes: list[Scope] = Field(min_length=1)
    expires_at: AwareDatetime | None = None


class ApiKeyOut(BaseModel):
    """An API key as shown: never its secret, only the last four characters."""

    id: UUID
    user_id: UUID
    name: str
    hint: str
    scopes: list[Scope]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class ApiKeyMade(BaseModel):
    """The new key: the only time that it is shown."""

    id: UUID
    token: str
    expires_at: datetime | None


class CollectionCreate(Body):
    """A new collection."""

    name: Name
    description: Text = ""


class CollectionChange(Body):
    """What to change of a collection; absent fields stay."""

    name: Name | None = None
    description: Text | None = None


class CollectionOut(BaseModel):
    """A collection with the caller's role on it."""

    id: UUID
    name: str
    description: str
    role: Role
    revision: int
    created_at: datetime


class CollectionStatusOut(BaseModel):
    """Documents per state, pages and chunks."""

    documents: dict[str, int]
    pages_total: int
    pages_indexed: int
    chunks: int


class GrantSet(Body):
    """A role on a collection."""

    role: Literal[Role.EDITOR, Role.REVIEWER, Role.VIEWER]


class GrantOut(BaseModel):
    """Who has which role."""

    user_id: UUID
    email: str
    role: Role


class DocumentOut(BaseModel):
    """A document with its latest version."""

    id: UUID
    collection_id: UUID
    name: str
    state: str
    code: str | None
    message: str | None
    pages_total: int
    pages_parsed: int
    pages_indexed: int
    chunks_total: int
    chunks_indexed: int
    media_type: str | None
    size_bytes: int
    sha256: str
    version_id: UUID | None
    version_number: int
    active_version_id: UUID | None
    language: str | None
    title: str | None
    facts: dict[str, Any]
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, view: DocumentView) -> "DocumentOut":
        """The shape of a document view."""
        document, version = view.document, view.version
        return cls(
            id=document.id,
            collection_id=document.collection_id,
            name=document.name,
            state=version.state if version else "received",
            code=version.code if version else None,
            message=version.message if version else None,
            pages_total=version.pages_total if version else 0,
            pages_parsed=version.pages_parsed if version else 0,
            pages_indexed=version.pages_indexed if version else 0,
            chunks_total=version.chunks_total if version else 0,
            chunks_indexed=version.chunks_indexed if version else 0,
            media_type=version.media_type if version else None,
            size_bytes=version.size_bytes if version else 0,
            sha256=version.sha256 if version else "",
            version_id=version.id if version else None,
            version_number=version.number if version else 0,
            active_version_id=document.active_version_id,
            language=version.language if version else None,
            title=version.title if version else None,
            facts=version.facts if version else {},
            created_at=document.created_at,
            updated_at=document.updated_at,
        )


class UploadOut(BaseModel):
    """The document that the upload led to; `duplicate_of` names it when the same bytes were there already."""

    document: DocumentOut
    job_id: UUID | None
    duplicate_of: UUID | None


class JobRef(BaseModel):
    """A job that was started."""

    job_id: UUID


class VersionOut(BaseModel):
    """One version of a document."""

    id: UUID
    number: int
    state: str
    code: str | None
    sha256: str
    size_bytes: int
    pages_total: int
    pages_indexed: int
    created_at: datetime
    indexed_at: datetime | None


class PageOut(BaseModel):
    """A page as parsed. Lines are `[start, end, box]`, elements `[kind, start, end, box, level, meta]`."""

    number: int
    label: str | None
    width: float | None
    height: float | None
    rotation: int
    state: str
    code: str | None
    message: str | None
    parser: str
    char_start: int | None
    char_end: int | None
    text: str
    lines: list[Any]
    elements: list[Any]


class JobOut(BaseModel):
    """A job's state and progress."""

    id: UUID
    kind: str
    state: str
    subject_id: UUID | None
    collection_id: UUID | None
    progress: dict[str, Any]
    attempt: int
    code: str | None
    message: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


class SearchIn(Body):
    """A search of one collection."""

    query: str = Field(max_length=4000)
    limit: int = Field(default=10, ge=1, le=50)


class HitOut(BaseModel):
    """A passage that was found; scores per leg beside the fused one."""

    document: str
    document_id: UUID
    version_id: UUID
    chunk_id: UUID
    page: int
    page_to: int
    header: str
    text: str
    score: float
    dense: float | None
    sparse: float | None
    char_start: int
    char_end: int


class SearchedOut(BaseModel):
    """What the legs proposed and what Postgres dropped."""

    dense_hits: int
    sparse_hits: int
    dropped: int
    languages: list[str]


class SearchOut(BaseModel):
    """Hits, best first."""

    hits: list[HitOut]
    searched: SearchedOut


class AskIn(Body):
    """A question to one collection."""

    question: str = Field(max_length=4000)
    route: Literal["auto", "retrieval", "full"] = "auto"
    document_ids: list[UUID] = Field(
        default=[], max_length=10_000, description="ask these documents only; an empty list means all"
    )


class AnswerOut(BaseModel):
    """A recorded answer; `citations` only in the single view."""

    id: UUID
    collection_id: UUID
    question: str
    state: str
    form: str
    text: str
    asked_route: str
    route: str
    route_reasons: list[str]
    selection: dict[str, Any]
    model: str
    coverage: dict[str, Any]
    verdicts: list[dict[str, Any]]
    tally: dict[str, int] | None
    tokens: dict[str, Any]
    run: dict[str, Any]
    again_of: UUID | None
    job_id: UUID | None
    seconds: float | None
    code: str | None
    message: str | None
    created_at: datetime
    citations: list[dict[str, Any]] = []
    changes: list[dict[str, Any]] | None = None
