"""Coverage adds up over random collections in a real database: failed, scanned, locked, deleted documents; rights."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app import bootstrap
from app.answering import corpus, fullpass, passages
from app.answering.coverage import Coverage
from app.answering.record import Draft
from app.answering.sections import Plan, Section
from app.answering.tools import AnswerTools
from app.core.clock import now
from app.core.errors import NotFoundError
from app.core.ids import new_id
from app.documents.snapshots import Piece, Snapshot
from app.documents.tables import Collection, CollectionGrant, Document, DocumentVersion, Page
from app.identity import accounts
from app.identity.permissions import Principal, Role
from app.retrieval.search import FoundChunk
from tests.support.stack import Stack

UNREAD = {"failed": "failed", "needs_password": "needs_password", "needs_ocr": "needs_ocr", "parsing": "in_progress"}


@dataclass(frozen=True, slots=True)
class Made:
    """A document as it was written: `pages` are the states of its pages."""

    state: str
    pages: tuple[str, ...]
    deleted: bool
    replaced: bool


@st.composite
def documents(draw: st.DrawFn) -> Made:
    state = draw(st.sampled_from(["indexed", "partial", *UNREAD]))
    if state == "indexed":
        pages = draw(st.lists(st.sampled_from(["ok", "blank"]), min_size=1, max_size=6))
    elif state == "partial":
        pages = ["ok", *draw(st.lists(st.sampled_from(["ok", "blank", "needs_ocr", "failed"]), max_size=6))]
    else:
        pages = draw(st.lists(st.sampled_from(["needs_ocr", "failed"]), max_size=3))
    return Made(state, tuple(pages), draw(st.booleans()) and draw(st.booleans()), draw(st.booleans()))


@dataclass(frozen=True, slots=True)
class Desk:
    tools: AnswerTools
    owner: Principal
    granted: Principal
    outsider: Principal


@pytest.fixture(scope="module")
def desk(stack: Stack) -> Iterator[Desk]:
    made = bootstrap.services(stack.settings)
    tenant = stack.owner.tenant_id
    people = []
    with made.database.tenant(tenant) as uow:
        for role in (Role.OWNER, Role.VIEWER, Role.VIEWER):
            email = f"{uuid4()}@main.example"
            user = accounts.create_user(uow, None, email=email, password=f"password {uuid4()}", role=role)
            people.append(Principal(tenant, user.id, role, email))
    yield Desk(bootstrap.answer_tools(made), *people)
    made.database.dispose()


def write(desk: Desk, wanted: Sequence[Made]) -> UUID:
    """A collection with these documents, and the grant of one viewer."""
    collection = new_id()
    with desk.tools.database.tenant(desk.owner.tenant_id) as uow:
        own = {"tenant_id": uow.tenant_id, "created_at": now()}
        uow.session.add(
            Collection(
                **own, id=collection, name=f"c {collection}", description="", revision=1, created_by=desk.owner.user_id
            )
        )
        uow.session.flush()
        uow.session.add(
            CollectionGrant(**own, collection_id=collection, user_id=desk.granted.user_id, role=Role.VIEWER.value)
        )
        for number, made in enumerate(wanted):
            _document(desk, uow.session, collection, number, made, own)
    return collection


def _document(desk: Desk, session: object, collection: UUID, number: int, made: Made, own: dict[str, object]) -> None:
    document = Document(
        **own,
        id=new_id(),
        collection_id=collection,
        name=f"document {number}",
        created_by=desk.owner.user_id,
        updated_at=now(),
        deleted_at=now() if made.deleted else None,
    )
    session.add(document)  # type: ignore[attr-defined]
    session.flush()  # type: ignore[attr-defined]
    # A replaced version with pages of its own: they must never be counted.
    for version_number, state, pages in (
        *([(1, "indexed", ("ok",) * 4)] if made.replaced else []),
        (2, made.state, made.pages),
    ):
        version = DocumentVersion(
            **own,
            id=new_id(),
            document_id=document.id,
            collection_id=collection,
            number=version_number,
            sha256=f"{number:064x}",
            size_bytes=1,
            state=state,
            facts={},
            parser_fingerprint="p",
            pages_total=len(pages),
            pages_parsed=len(pages),
            pages_indexed=0,
            chunks_total=0,
            chunks_indexed=0,
        )
        session.add(version)  # type: ignore[attr-defined]
        session.flush()  # type: ignore[attr-defined]
        at = 0
        for page, page_state in enumerate(pages, start=1):
            text = "words" if page_state == "ok" else ""
            session.add(  # type: ignore[attr-defined]
                Page(
                    tenant_id=own["tenant_id"],
                    version_id=version.id,
                    number=page,
                    parser_fingerprint="p",
                    rotation=0,
                    state=page_state,
                    parser="p",
                    char_start=at,
                    char_end=at + len(text),
                    text=text,
                    lines=[],
                    elements=[],
                )
            )
            at += len(text) + 1
        document.latest_version_id = version.id
        if version_number == 2:
            document.active_version_id = version.id if state in ("indexed", "partial") else None
    session.flush()  # type: ignore[attr-defined]


def question(collection: UUID, chosen: Sequence[UUID] = ()) -> Draft:
    return Draft(new_id(), collection, "What?", "full", "full", now(), document_ids=tuple(chosen))


def planned(snapshot: Snapshot, budget: int) -> Plan:
    """A plan that reads the first `budget` pages, two in a section."""
    pieces = [
        Piece(document.ordinal, page.source, document.version_id, page.number, 0, page.end - page.start)
        for document in snapshot.documents
        for page in document.pages
    ][:budget]
    pairs = [tuple(pieces[at : at + 2]) for at in range(0, len(pieces), 2)]
    return Plan(snapshot, "seal", tuple(Section(pair, 1, "x") for pair in pairs), additive=True)


def adds_up(found: Coverage, wanted: Sequence[Made]) -> None:
    """Every page of every visible document is read, searched or skipped for its own reason, exactly once."""
    alive = [made for made in wanted if not made.deleted]
    skipped = sum(entry.pages or 0 for entry in found.skipped)
    assert found.documents_total == len(alive)
    assert found.pages_total == sum(len(made.pages) for made in alive)
    assert found.pages_read + found.pages_searched_only + skipped == found.pages_total


def reasons(found: Coverage) -> dict[str, int]:
    by_reason: dict[str, int] = {}
    for entry in found.skipped:
        by_reason[entry.reason] = by_reason.get(entry.reason, 0) + (entry.pages or 0)
    return {reason: pages for reason, pages in by_reason.items() if pages}


def expected(wanted: Sequence[Made]) -> dict[str, int]:
    """Pages that cannot be read, by reason."""
    by_reason: dict[str, int] = {}
    for made in wanted:
        if made.deleted:
            continue
        if made.state in UNREAD:
            by_reason[UNREAD[made.state]] = by_reason.get(UNREAD[made.state], 0) + len(made.pages)
        else:
            for state in made.pages:
                if state in ("needs_ocr", "failed"):
                    by_reason[state] = by_reason.get(state, 0) + 1
    return {reason: pages for reason, pages in by_reason.items() if pages}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=st.lists(documents(), max_size=6), others=st.lists(documents(), max_size=2), cut=st.integers(0, 30))
def test_the_sums_hold_on_both_routes_and_count_nothing_without_a_right(
    desk: Desk, wanted: list[Made], others: list[Made], cut: int
) -> None:
    write(desk, others)  # another collection of the tenant: never counted
    collection = write(desk, wanted)
    for actor in (desk.owner, desk.granted):
        scope, snapshot = corpus.frozen(desk.tools, actor, question(collection))
        readable = sum(
            state in ("ok", "blank")
            for made in wanted
            if not made.deleted and made.state not in UNREAD
            for state in made.pages
        )
        assert snapshot.pages == readable
        whole = fullpass.covered(scope, planned(snapshot, 10_000))
        adds_up(whole, wanted)
        assert whole.pages_read == readable
        assert reasons(whole) == expected(wanted)
        cut_off = fullpass.covered(scope, planned(snapshot, max(1, cut)))
        if snapshot.pages:
            adds_up(cut_off, wanted)
            over = {"budget": readable - max(1, cut)} if cut and readable > max(1, cut) else {}
            if readable > 1 and not cut:
                over = {"budget": readable - 1}
            assert reasons(cut_off) == {**expected(wanted), **over}
        hits = [_hit(snapshot, document.ordinal) for document in snapshot.documents]
        searched = passages.covered(scope, hits)
        adds_up(searched, wanted)
        assert searched.pages_read == len(hits)
    with pytest.raises(NotFoundError):
        corpus.frozen(desk.tools, desk.outsider, question(collection))


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(wanted=st.lists(documents(), min_size=1, max_size=5), data=st.data())
def test_what_was_not_selected_is_named(desk: Desk, wanted: list[Made], data: st.DataObject) -> None:
    collection = write(desk, wanted)
    everything, _ = corpus.frozen(desk.tools, desk.owner, question(collection))
    ids = [UUID(document.document_id) for document in everything.documents]
    chosen = data.draw(st.sets(st.sampled_from(ids), min_size=1)) if ids else set()
    scope, snapshot = corpus.frozen(desk.tools, desk.owner, question(collection, sorted(chosen)))
    found = fullpass.covered(scope, planned(snapshot, 10_000))
    adds_up(found, wanted)
    named = {entry.document_id for entry in found.skipped if entry.reason == "not_selected"}
    assert named == (
        {str(document_id) for document_id in ids} - {str(document_id) for document_id in chosen} if chosen else set()
    )


def _hit(snapshot: Snapshot, ordinal: int) -> FoundChunk:
    document = snapshot.documents[ordinal - 1]
    page = document.pages[0].number
    return FoundChunk(
        new_id(),
        document.document_id,
        document.version_id,
        document.name,
        "words",
        "",
        "en",
        0,
        5,
        page,
        page,
        1.0,
        1.0,
        1.0,
    )
