"""The command `ingest`: files go in, four at a time, and are watched until the server is done with each."""

import concurrent.futures
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.options import DataOption, JsonOption, KeyOption, UrlOption
from app.cli.output import EXIT_INTERRUPTED, EXIT_NOT_ALL_INDEXED, CommandError, note, print_json

if TYPE_CHECKING:
    from app.cli.client import Api
    from app.cli.progress import Progress
    from app.cli.sources import Source, Sources
    from app.cli.tracking import FileState, Tracker

UPLOADS = 4
#: These mean that no other file will fare better.
_HOPELESS = frozenset({401, 403, 404})

EPILOG = "\n\n".join(
    (
        "**Examples**",
        "`fullread ingest contracts/ -c contracts`: a folder with everything in it",
        "`fullread ingest 'archive/**/*.pdf' letters/2025.docx -c archive`: a quoted pattern, a file",
        "`fullread ingest contracts/ -c contracts --json`: for scripts; exit 3 when a file is not indexed",
        (
            "Sending the same files again is harmless: what is there is not taken twice, and changed files become new"
            " versions of the document of that name."
        ),
    )
)


def ingest(
    paths: Annotated[list[str], typer.Argument(metavar="PATH", help="Files, folders, quoted glob patterns.")],
    collection: Annotated[
        str, typer.Option("--collection", "-c", metavar="NAME", help="Collection; made when there is none.")
    ],
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until every document is done, or only send the files.")
    ] = True,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send files into a collection and wait until each is indexed, or says why not."""
    from app.cli.session import connect
    from app.cli.tracking import PATIENCE_S

    with connect(data, url, api_key, patience_s=PATIENCE_S) as api:
        raise typer.Exit(send(api, paths, collection, wait=wait, as_json=as_json))


def send(api: "Api", paths: list[str], collection: str, *, wait: bool = True, as_json: bool = False) -> int:
    """Send, watch and show; the exit status: 0 when every file is indexed (or, without `wait`, was taken)."""
    from app.cli.collections import ensure
    from app.cli.progress import Progress
    from app.cli.sources import Sources
    from app.cli.tracking import Tracker

    found = ensure(api, collection)
    sources, tracker = Sources(paths), Tracker(api)
    batch = _Batch(api, str(found["id"]), iter(sources), tracker)
    try:
        with Progress(quiet=as_json) as progress:
            batch.run(progress, wait=wait)
    except KeyboardInterrupt:
        return _interrupted(batch, collection, as_json=as_json)
    except CommandError as failure:
        failure.problem["files"] = [_file_json(file) for file in tracker.files]
        failure.problem["collection_id"] = found["id"]
        raise
    files = tracker.files
    if as_json:
        print_json({"files": [_file_json(file) for file in files], "collection_id": found["id"]})
    else:
        _show(files, collection, sources, waited=wait)
    if not files:
        note("No files were found there.")
    good = all(file.state == "indexed" or (not wait and file.works) for file in files)
    return 0 if good else EXIT_NOT_ALL_INDEXED


@dataclass(slots=True)
class _Batch:
    """One run: files found, files on their way, files that the server has."""

    api: "Api"
    collection_id: str
    sources: "Iterator[Source]"
    tracker: "Tracker"
    found: int = 0
    all_found: bool = False
    sending: "dict[concurrent.futures.Future[FileState], int]" = field(default_factory=dict)

    def run(self, progress: "Progress", *, wait: bool) -> None:
        """Send everything; with `wait` until every document is in an end state."""
        pool = concurrent.futures.ThreadPoolExecutor(UPLOADS, thread_name_prefix="upload")
        try:
            while True:
                self._fill(pool)
                self._collect()
                if wait:
                    self.tracker.round()
                progress.show(self.tracker, self.found, all_found=self.all_found)
                if self.all_found and not self.sending and not (wait and self.tracker.working):
                    return
        finally:
            self.api.stop.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _fill(self, pool: concurrent.futures.ThreadPoolExecutor) -> None:
        while not self.all_found and len(self.sending) < 2 * UPLOADS:
            source = next(self.sources, None)
            if source is None:
                self.all_found = True
                return
            self.sending[pool.submit(_upload, self.api, self.collection_id, source)] = self.found
            self.found += 1

    def _collect(self) -> None:
        if not self.sending:
            time.sleep(min(0.2, self.tracker.wait_s()))
            return
        done, _ = concurrent.futures.wait(self.sending, timeout=0.2, return_when=concurrent.futures.FIRST_COMPLETED)
        for future in done:
            self.tracker.put(self.sending.pop(future), future.result())


def _upload(api: "Api", collection_id: str, source: "Source") -> "FileState":
    """Send one file. What concerns only this file is its state; CommandError is for what ends the whole run."""
    from app.cli.tracking import FileState

    if source.problem is not None:
        return FileState(source.path, source.name, "failed", "unreadable", source.problem)
    try:
        answer = api.upload(collection_id, Path(source.path), source.name)
    except OSError as error:
        return FileState(source.path, source.name, "failed", "unreadable", f"{error.strerror or error}.")
    except CommandError as failure:
        if failure.status is None or failure.status in _HOPELESS:
            raise
        return FileState(source.path, source.name, "failed", failure.code, str(failure))
    file = FileState(source.path, source.name, "received", duplicate=answer["duplicate_of"] is not None)
    return file.with_document(answer["document"])


def _file_json(file: "FileState") -> dict[str, Any]:
    return {
        "path": file.path,
        "name": file.name,
        "state": file.state,
        "code": file.code,
        "message": file.message,
        "document_id": file.document_id,
        "pages_total": file.pages_total,
        "pages_indexed": file.pages_indexed,
        "duplicate": file.duplicate,
    }


def _interrupted(batch: _Batch, collection: str, *, as_json: bool) -> int:
    files = batch.tracker.files
    if as_json:
        print_json({"files": [_file_json(file) for file in files], "interrupted": True})
    taken = sum(file.document_id is not None for file in files)
    rest = "" if batch.all_found and not batch.sending else " The same command again sends the rest."
    note(
        f"Stopped watching. The server has {taken} of the files and goes on with them:"
        f" `fullread documents -c {collection}` shows how far they are.{rest}"
    )
    return EXIT_INTERRUPTED


def _show(files: "list[FileState]", collection: str, sources: "Sources", *, waited: bool) -> None:
    from app.cli.progress import summary

    summary(files, collection, waited=waited)
    if sources.left_out:
        note(f"{sources.left_out} hidden or temporary files were left out.")
