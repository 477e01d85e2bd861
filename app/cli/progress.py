"""How a batch of files is shown: a live line while it runs, the outcome when it is over."""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from app.cli.output import clean, console, count, line, note, say, table

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from app.cli.tracking import FileState, Tracker

#: How many files are listed one by one when all went well.
_LISTED = 40
#: Without a terminal: seconds between two lines.
_LINE_EVERY_S = 10.0
_BAR_EVERY_S = 0.1


class Progress:
    """Facts of a running batch on stderr: a bar on a terminal, a line now and then elsewhere, nothing when quiet."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._bar: Bar | None = None
        self._silent = quiet and not sys.stderr.isatty()
        self._spoke_at = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            words = TextColumn("{task.description}", markup=False)
            columns = (SpinnerColumn(), BarColumn(bar_width=24), words, TimeElapsedColumn())
            self._bar = Bar(*columns, console=console(errors=True), transient=True)
            self._bar.start()
            self._bar.add_task("", total=None)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, tracker: "Tracker", found: int, *, all_found: bool) -> None:
        """Show where the batch is; `found` files so far, all of them when `all_found`."""
        every_s = _LINE_EVERY_S if self._bar is None else _BAR_EVERY_S
        if self._silent or time.monotonic() - self._spoke_at < every_s:
            return
        self._spoke_at = time.monotonic()
        words, done = _words(tracker, found, all_found=all_found)
        if self._bar is not None:
            task = self._bar.task_ids[0]
            self._bar.update(task, description=words, completed=done, total=found if all_found else None)
        else:
            note(words)


def _words(tracker: "Tracker", found: int, *, all_found: bool) -> tuple[str, int]:
    files, working = tracker.files, tracker.working
    done = len(files) - len(working)
    pages = sum(file.pages_indexed for file in files)
    words = f"{done} of {count(found, 'file')}{'' if all_found else ' so far'} done, {count(pages, 'page')} indexed"
    busy = next((file for file in working if file.state != "received"), None)
    if tracker.missing:
        words += f"; waits: {line('; '.join(tracker.missing))}"
    elif busy is not None:
        at = f", page {busy.pages_parsed} of {busy.pages_total}" if busy.pages_total > 1 else ""
        words += f"; {busy.state} {line(busy.name, limit=60)}{at}"
    return words, done


def summary(files: "Sequence[FileState]", collection: str, *, waited: bool) -> None:
    """The outcome on stdout: each file, or of many only those that are not indexed, then one sentence."""
    states = Counter(file.state for file in files)
    indexed = states["indexed"]
    shown = files if len(files) <= _LISTED else [file for file in files if file.state != "indexed" and not file.works]
    if shown:
        table(("state", "pages", "file", "why"), [_row(file) for file in shown], right=("pages",))
        say()
    if not files:
        return
    pages = sum(file.pages_indexed for file in files)
    where = f"in collection {clean(collection)}"
    if not waited:
        say(f"{count(len(files), 'file')} sent, {indexed} of them indexed already, {where}.")
        say(f"`fullread documents -c {collection}` shows how far the others are.")
    elif indexed == len(files):
        say(f"{count(indexed, 'file')} indexed, {count(pages, 'page')}, {where}.")
    else:
        others = ", ".join(f"{number} {state}" for state, number in sorted(states.items()) if state != "indexed")
        say(f"{indexed} of {count(len(files), 'file')} indexed, {count(pages, 'page')}, {where}; {others}.")


def _row(file: "FileState") -> tuple[object, ...]:
    pages = f"{file.pages_indexed}" if file.pages_indexed == file.pages_total else _part(file)
    return file.state, pages if file.pages_total else "-", file.name, _why(file)


def _part(file: "FileState") -> str:
    return f"{file.pages_indexed} of {file.pages_total}"


def _why(file: "FileState") -> str:
    if file.message or file.code:
        return f"{file.message or ''} ({file.code})" if file.code else str(file.message)
    return "the same bytes were there already" if file.duplicate else ""
