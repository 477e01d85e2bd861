"""What became of each file: asked from the server until every document is in an end state."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from app.cli.client import Api
from app.cli.output import CommandError

#: How long a server that restarts is asked again.
PATIENCE_S = 60.0
WORKING_STATES = frozenset({"received", "parsing", "indexing"})
#: Documents asked for in one round: the oldest that still work, and as many of the others in turn.
_ROUND = 8
_SHORTEST_PAUSE_S = 0.3
_LONGEST_PAUSE_S = 2.0
#: After this long without any change the server is asked what it lacks.
_STALLED_S = 20.0


@dataclass(frozen=True, slots=True)
class FileState:
    """One file as `ingest --json` shows it. `state` is the document's, or `failed` when it never became one."""

    path: str
    name: str
    state: str
    code: str | None = None
    message: str | None = None
    document_id: str | None = None
    pages_total: int = 0
    pages_indexed: int = 0
    pages_parsed: int = 0
    duplicate: bool = False

    @property
    def works(self) -> bool:
        """Whether the server still works on it."""
        return self.document_id is not None and self.state in WORKING_STATES

    def with_document(self, document: Mapping[str, Any]) -> "FileState":
        """The same file with what the server says now."""
        return replace(
            self,
            state=document["state"],
            code=document["code"],
            message=document["message"],
            document_id=document["id"],
            pages_total=document["pages_total"],
            pages_indexed=document["pages_indexed"],
            pages_parsed=document.get("pages_parsed", 0),
        )


class Tracker:
    """Files by their order, and rounds of questions about those that still work. One thread only."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._files: dict[int, FileState] = {}
        self._working: list[int] = []
        self._turn = 0
        self._pause_s = _SHORTEST_PAUSE_S
        self._next_at = 0.0
        self._changed_at = time.monotonic()
        self.missing: list[str] = []

    def put(self, number: int, file: FileState) -> None:
        """Add or replace a file."""
        self._files[number] = file
        self._changed_at = time.monotonic()
        if file.works:
            self._working.append(number)

    @property
    def files(self) -> list[FileState]:
        """All files, in their order."""
        return [self._files[number] for number in sorted(self._files)]

    @property
    def working(self) -> list[FileState]:
        """The files that the server still works on, oldest first."""
        return [self._files[number] for number in self._working]

    def wait_s(self) -> float:
        """Seconds until the next round is due."""
        return max(0.0, self._next_at - time.monotonic())

    def round(self) -> None:
        """Ask about the oldest working files and some of the others, when it is time. Raises CommandError."""
        if self.wait_s() > 0 or not self._working:
            return
        before = {number: self._files[number] for number in self._working}
        waiting: list[int] = []
        asked = 0
        # Documents end roughly in their order: the front is asked until enough of it still works.
        for number in self._working:
            if asked >= _ROUND or self._ask(number):
                waiting.append(number)
                asked += 1
        others = waiting[_ROUND:]
        for step in range(min(_ROUND, len(others))):
            number = others[(self._turn + step) % len(others)]
            if not self._ask(number):
                waiting.remove(number)
        self._turn += _ROUND
        self._working = waiting
        changed = any(self._files[number] != file for number, file in before.items())
        self._pace(changed=changed)

    def _pace(self, *, changed: bool) -> None:
        now = time.monotonic()
        if changed:
            self._changed_at, self._pause_s, self.missing = now, _SHORTEST_PAUSE_S, []
        else:
            self._pause_s = min(self._pause_s * 1.5, _LONGEST_PAUSE_S)
            if now - self._changed_at > _STALLED_S:
                self.missing = self._api.missing()
        self._next_at = now + self._pause_s

    def _ask(self, number: int) -> bool:
        """Ask about one file; whether the server still works on it."""
        file = self._files[number]
        try:
            file = file.with_document(self._api.get(f"/documents/{file.document_id}"))
        except CommandError as failure:
            if failure.status != 404:
                raise
            file = replace(file, state="failed", code="deleted", message="The document was deleted meanwhile.")
        self._files[number] = file
        return file.works
