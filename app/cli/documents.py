"""The commands `documents`, `delete`, `retry` and `cancel`."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.collections import choose, is_id
from app.cli.options import CollectionOption, DataOption, JsonOption, KeyOption, UrlOption, YesOption
from app.cli.output import (
    EXIT_NOT_ALL_INDEXED,
    CommandError,
    agree,
    count,
    line,
    note,
    print_json,
    say,
    table,
    when,
    why,
    wrong_use,
)

if TYPE_CHECKING:
    from app.cli.client import Api

Document = dict[str, Any]
WORKING_STATES = ("received", "parsing", "indexing")
RETRYABLE_STATES = ("failed", "cancelled", "needs_password", "needs_ocr", "partial")

commands = typer.Typer(
    help="Documents of a collection: their states and reasons, and one in full.",
    epilog="\n\n".join(
        (
            "**Examples**",
            "`fullread documents -c contracts`: all of them",
            "`fullread documents -c contracts --state failed`: those that could not be read, and why",
            "`fullread documents show msa.pdf -c contracts --page 3`: what was read on page 3",
        )
    ),
)
DELETE_EPILOG = "\n\n".join(
    (
        "**Examples**",
        "`fullread delete msa.pdf old/nda.docx -c contracts`: by name (as `fullread documents` shows it) or id",
        (
            "`fullread delete -c contracts --all --yes`: all documents; the collection itself goes with"
            " `fullread collections delete`"
        ),
    )
)
DocumentsArgument = Annotated[
    list[str] | None, typer.Argument(metavar="DOCUMENT", help="Names (as `documents` shows them) or ids.")
]


def find(api: "Api", document: str, collection: str | None) -> Document:
    """A document by id, or by its name in a collection. Raises CommandError."""
    if is_id(document):
        try:
            return api.get(f"/documents/{document}")
        except CommandError as failure:
            if failure.status != 404:
                raise
    chosen = choose(api, collection)
    found = next(api.items(f"/collections/{chosen['id']}/documents", name=document), None)
    if found is None:
        raise CommandError(
            "document_not_found",
            f"There is no document '{document}' in {chosen['name']}: see `fullread documents -c {chosen['name']}`.",
        )
    return found


def _pick(
    api: "Api", names: list[str] | None, collection: str | None, *, everything: bool, states: tuple[str, ...] = ()
) -> list[Document]:
    """The documents that are named, or all of a collection (in `states`)."""
    if bool(names) == everything:
        raise wrong_use("Name documents, or give --all (with --collection): one of the two.")
    if names:
        return [find(api, name, collection) for name in names]
    if collection is None:
        raise wrong_use("--all needs --collection NAME.")
    found = api.items(f"/collections/{choose(api, collection)['id']}/documents")
    return [document for document in found if not states or document["state"] in states]


@commands.callback(invoke_without_command=True)
def list_or_command(
    context: typer.Context,
    collection: CollectionOption = None,
    state: Annotated[str | None, typer.Option(help="Only documents in this state, for instance failed.")] = None,
    name: Annotated[str | None, typer.Option(help="Only the document of this name.")] = None,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Documents of a collection: their states and reasons, and one in full."""
    if context.invoked_subcommand is None:
        list_documents(collection, state, name, data, url, api_key, as_json)


@commands.command("list")
def list_documents(
    collection: CollectionOption = None,
    state: Annotated[str | None, typer.Option(help="Only documents in this state, for instance failed.")] = None,
    name: Annotated[str | None, typer.Option(help="Only the document of this name.")] = None,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """All documents with state and reason, oldest first."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        chosen = choose(api, collection)
        found = list(api.items(f"/collections/{chosen['id']}/documents", state=state, name=name))
    if as_json:
        print_json({"documents": found})
    elif not found:
        say(f"No such documents in {chosen['name']}.")
    else:
        rows = [(d["state"], _pages(d), d["name"], when(d["updated_at"]), why(d), d["id"]) for d in found]
        table(("state", "pages", "document", "changed (UTC)", "why", "id"), rows, right=("pages",))


def _pages(document: Document) -> str:
    total, indexed = document["pages_total"], document["pages_indexed"]
    if not total:
        return "-"
    return str(total) if indexed == total else f"{indexed} of {total}"


@commands.command()
def show(
    document: Annotated[str, typer.Argument(metavar="DOCUMENT", help="Name or id.")],
    page: Annotated[int | None, typer.Option(min=1, help="Show the text that was read on this page.")] = None,
    collection: CollectionOption = None,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """One document: state, pages, versions; with --page the text that was read there."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        found = find(api, document, collection)
        if page is not None:
            read = api.get(f"/documents/{found['id']}/pages/{page}")
        else:
            versions = list(api.items(f"/documents/{found['id']}/versions"))
    if page is not None:
        if as_json:
            print_json(read)
        else:
            _show_page(found, read)
    elif as_json:
        print_json({**found, "versions": versions})
    else:
        _show(found, versions)


def _show(document: Document, versions: list[Document]) -> None:
    facts = (
        ("document", document["name"]),
        ("id", document["id"]),
        ("state", document["state"]),
        ("why", why(document)),
        ("pages", f"{document['pages_indexed']} of {document['pages_total']} indexed"),
        ("chunks", document["chunks_total"]),
        ("title", document["title"]),
        ("language", document["language"]),
        ("type", document["media_type"]),
        ("bytes", f"{document['size_bytes']:,}"),
        ("sha-256", document["sha256"]),
        ("added", f"{when(document['created_at'])} UTC"),
        ("versions", ", ".join(f"{v['number']} ({v['state']})" for v in versions)),
    )
    for name, value in facts:
        if value not in (None, ""):
            say(f"{name:<9} {line(value)}")


def _show_page(document: Document, page: Document) -> None:
    label = f" (printed {page['label']})" if page["label"] and page["label"] != str(page["number"]) else ""
    note(f"{document['name']}, page {page['number']}{label}, {page['state']}")
    if page["message"]:
        note(f"{page['message']} ({page['code']})")
    say(page["text"])


def delete(
    documents: DocumentsArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="All documents of the collection.")] = False,
    collection: CollectionOption = None,
    yes: YesOption = False,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete documents: no search finds them from now on, and their bytes are erased within seconds."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        found = _pick(api, documents, collection, everything=everything)
        if found:
            what = str(found[0]["name"]) if len(found) == 1 else count(len(found), "document")
            agree(f"Delete {what}?", yes=yes)
        gone = [{**_brief(d), "job_id": api.send("DELETE", f"/documents/{d['id']}")["job_id"]} for d in found]
    if as_json:
        print_json({"deleted": gone})
    else:
        say(f"{count(len(gone), 'document')} deleted.")


def _brief(document: Document) -> Document:
    return {"document": document["name"], "document_id": document["id"]}


def retry(
    documents: DocumentsArgument = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All of the collection that are not (wholly) indexed.")
    ] = False,
    collection: CollectionOption = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until they are done.")] = True,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ingest documents again that failed, were cancelled or are only partly indexed. Exit 3 when some fail again."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        found = _pick(api, documents, collection, everything=everything, states=RETRYABLE_STATES)
        started = [api.send("POST", f"/documents/{document['id']}/retry")["document"] for document in found]
        ended = _watch(api, started, quiet=as_json) if wait else started
    _outcome(ended, as_json=as_json, none="Nothing to retry there.")
    if wait and any(document["state"] != "indexed" for document in ended):
        raise typer.Exit(EXIT_NOT_ALL_INDEXED)


def _watch(api: "Api", documents: list[Document], *, quiet: bool) -> list[Document]:
    """Wait until each of these documents is in an end state; the documents as they are then."""
    from app.cli.progress import Progress
    from app.cli.tracking import PATIENCE_S, FileState, Tracker

    api.patience_s = PATIENCE_S
    tracker = Tracker(api)
    for number, document in enumerate(documents):
        file = FileState(document["name"], document["name"], "received")
        tracker.put(number, file.with_document(document))
    with Progress(quiet=quiet) as progress:
        while tracker.working:
            time.sleep(min(0.2, tracker.wait_s()))
            tracker.round()
            progress.show(tracker, len(documents), all_found=True)
    return [api.get(f"/documents/{document['id']}") for document in documents]


def cancel(
    documents: DocumentsArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="All of the collection that are being worked on.")] = False,
    collection: CollectionOption = None,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop the ingestion of documents; a version that was indexed before stays in use."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        found = _pick(api, documents, collection, everything=everything, states=WORKING_STATES)
        ended = _each(found, lambda d: api.send("POST", f"/documents/{d['id']}/cancel"), tolerant=everything)
    _outcome(ended, as_json=as_json, none="Nothing is being worked on there.")


def _each(found: list[Document], act: Callable[[Document], Document], *, tolerant: bool) -> list[Document]:
    """Act on each; when `tolerant`, one that has ended meanwhile (409) is passed over."""
    done = []
    for document in found:
        try:
            done.append(act(document))
        except CommandError as failure:
            if not tolerant or failure.status != 409:
                raise
    return done


def _outcome(documents: list[Document], *, as_json: bool, none: str) -> None:
    if as_json:
        print_json({"documents": documents})
    elif documents:
        table(("state", "document", "why"), [(d["state"], d["name"], why(d)) for d in documents])
    else:
        say(none)
