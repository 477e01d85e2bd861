"""What leaves the command line: JSON, lines, tables, problems; all text is disarmed before a terminal sees it."""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

#: What steers a terminal or reorders its text: C0 and C1 controls, bidirectional overrides, lone surrogates.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
#: The same inside JSON, where these characters can only stand in strings and may be written as escapes.
_STEERING_JSON = re.compile("[\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
#: Wide enough that a pipe gets whole lines.
_PIPE_COLUMNS = 4000

EXIT_FAILURE = 1
EXIT_WRONG_USE = 2
EXIT_NOT_ALL_INDEXED = 3
EXIT_NOT_FOUND = 4
EXIT_INTERRUPTED = 130


class CommandError(Exception):
    """A command could not do its work. `problem` is the RFC 9457 object that `--json` prints."""

    def __init__(self, code: str, detail: str, *, exit_code: int = EXIT_FAILURE, **facts: Any) -> None:
        super().__init__(detail)
        self.exit_code = exit_code
        self.problem: dict[str, Any] = {
            "type": f"urn:fullread:problem:{code}",
            "title": "Wrong use" if exit_code == EXIT_WRONG_USE else "Failed",
            "status": None,
            "code": code,
            "detail": detail,
            **facts,
        }

    @classmethod
    def of(cls, problem: dict[str, Any]) -> "CommandError":
        """The failure that a server's problem object says; invalid input (422) counts as wrong use."""
        wrong_use = problem.get("status") == 422
        detail = str(problem.get("detail") or problem.get("title") or "The server refused.")
        made = cls(str(problem.get("code", "unknown")), detail, exit_code=EXIT_WRONG_USE if wrong_use else EXIT_FAILURE)
        made.problem = problem
        return made

    @property
    def code(self) -> str:
        """The stable code."""
        return str(self.problem.get("code"))

    @property
    def status(self) -> int | None:
        """The HTTP status; None when no server answered."""
        status = self.problem.get("status")
        return status if isinstance(status, int) else None


def wrong_use(detail: str) -> CommandError:
    """The failure for options that make no sense together (exit 2)."""
    return CommandError("wrong_use", detail, exit_code=EXIT_WRONG_USE)


def clean(text: str) -> str:
    """Text that cannot steer a terminal: control characters and bidirectional overrides become U+FFFD."""
    return _STEERING.sub("\ufffd", text)


def line(text: object, *, limit: int | None = None) -> str:
    """The same on one line, white space collapsed, cut at `limit` characters."""
    flat = clean(" ".join(str(text).split()))
    return flat if limit is None or len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def print_json(value: Any) -> None:
    """One JSON value on stdout: readable, and without raw characters that steer a terminal."""
    encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
    text = json.dumps(value, ensure_ascii=encoding != "utf8", indent=1)
    sys.stdout.write(_STEERING_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def say(text: str = "") -> None:
    """One plain line on stdout."""
    sys.stdout.write(f"{clean(text)}\n")
    sys.stdout.flush()  # a pipe gets it now, in its order with what stands on stderr


def note(text: str) -> None:
    """One line on stderr: for a person, never for a script."""
    sys.stderr.write(f"{line(text)}\n")


def console(*, errors: bool = False) -> "Console":
    """A console that takes text as it is: no markup, no emoji codes, no guessing; a pipe gets unwrapped lines."""
    from rich.console import Console

    stream = sys.stderr if errors else sys.stdout
    width = None if stream.isatty() else _PIPE_COLUMNS
    return Console(file=stream, markup=False, emoji=False, highlight=False, width=width)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """A table on stdout; cells are flattened to one line and disarmed. Columns in `right` hold numbers."""
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        grid.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text("" if cell is None else line(cell)) for cell in row))
    target = console()
    if target.is_terminal:
        target.print(grid)
        return
    with target.capture() as captured:
        target.print(grid)
    sys.stdout.write("".join(f"{text.rstrip()}\n" for text in captured.get().splitlines()))


def report(failure: CommandError, *, as_json: bool) -> int:
    """One sentence on stderr; with `--json` the problem object on stdout, too. The exit status."""
    if as_json:
        print_json(failure.problem)
    note(f"Error: {failure}")
    return failure.exit_code


def count(number: int, noun: str) -> str:
    """`1 page`, `1,204 pages`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def when(moment: str | None) -> str:
    """An ISO time of the API as `2026-01-31 14:05` UTC; `-` for none."""
    return "-" if not moment else moment[:16].replace("T", " ")


def agree(question: str, *, yes: bool) -> None:
    """Go on only when the person says so. Raises CommandError where nobody can be asked, and when the answer is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise wrong_use(f"{question} Say so with --yes: there is no terminal to ask.")
    import typer

    if not typer.confirm(line(question), err=True):
        raise CommandError("not_confirmed", "Nothing was changed.")


def why(thing: Mapping[str, Any]) -> str:
    """Message and code of a document or job that did not end well; empty for one that did."""
    return f"{thing['message'] or ''} ({thing['code']})" if thing["code"] else thing["message"] or ""
