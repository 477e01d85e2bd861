"""The commands `ask` and `search`: answers as they are found, with what proves them."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.options import CollectionOption, DataOption, JsonOption, KeyOption, UrlOption
from app.cli.output import EXIT_NOT_FOUND, CommandError, clean, console, line, print_json, say

if TYPE_CHECKING:
    from rich.status import Status

    from app.cli.client import Api

Json = dict[str, Any]

ASK_EPILOG = "\n\n".join(
    (
        "**Examples**",
        '`fullread ask "What is the liability cap?" -c contracts`',
        (
            '`fullread ask "¿Cuál es el plazo de preaviso?" -c contracts --json`: with boxes and coverage; exit 4 when'
            " nothing was found"
        ),
        "A ✓ means that the quoted words stand on the page that is named: they were looked up there.",
    )
)
SEARCH_EPILOG = "\n\n".join(
    ("**Example**", '`fullread search "notice period" -c contracts --limit 5`: passages, best first')
)
_PHASES = {"searching": "Searching", "reading": "Reading", "writing": "Writing", "checking": "Checking the quotes"}
#: Skipped documents that are named under an answer.
_NAMED = 5


class Route(StrEnum):
    """How an answer is looked for."""

    AUTO = "auto"
    RETRIEVAL = "retrieval"
    FULL = "full"


def ask(
    question: Annotated[str, typer.Argument(help="The question, in quotes, in any language of the documents.")],
    collection: CollectionOption = None,
    route: Annotated[
        Route, typer.Option(help="retrieval searches; full reads everything (a later release); auto chooses.")
    ] = Route.AUTO,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a question: an answer with quotes that were looked up in the documents. Exit 4 when nothing was found."""
    from app.cli.collections import choose
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        chosen = choose(api, collection)
        if as_json:
            answer = api.ask(chosen["id"], question, route.value)
            print_json(answer)
        else:
            answer = show_answer(api, chosen["id"], question, route.value)
    if answer["state"] == "not_found":
        raise typer.Exit(EXIT_NOT_FOUND)


def show_answer(api: "Api", collection_id: str, question: str, route: str = "auto") -> Json:
    """Ask, show phases, quotes and text as they come, then what was read; the whole answer."""
    shown = _Shown()
    with closing(api.ask_events(collection_id, question, route)) as events:
        answer = _follow(events, shown)
    shown.finish(answer)
    return answer


def _follow(events: Iterator[tuple[str, Json]], shown: "_Shown") -> Json:
    with _phases() as status:
        for kind, data in events:
            if kind == "status" and status is not None:
                status.update(f"{_phase(str(data.get('phase', 'working')))} …")
            elif kind == "citation":
                with _paused(status):
                    shown.citation(data)
            elif kind == "delta":
                if status is not None and not shown.extractive:
                    status.stop()
                shown.delta(str(data.get("text", "")))
            elif kind == "error":
                shown.end_text()
                raise CommandError.of(data)
            elif kind == "answer":
                return data
    shown.end_text()
    raise CommandError("answer_cut", "The answer was cut off: the server went away. Ask again.")


@contextmanager
def _paused(status: "Status | None") -> Iterator[None]:
    """Off the terminal's line while something else is written."""
    if status is not None:
        status.stop()
    yield
    if status is not None:
        status.start()


def _phase(name: str) -> str:
    return _PHASES.get(name) or line(name).replace("_", " ").capitalize()


def _phases() -> "AbstractContextManager[Status | None]":
    if not sys.stderr.isatty() or not sys.stdout.isatty():
        return nullcontext()
    return console(errors=True).status("Searching …")


class _Shown:
    """What of an answer has been shown. Quotes that come before any text are the answer itself (extractive)."""

    def __init__(self) -> None:
        self._quotes: list[Json] = []
        self._writing = False

    @property
    def extractive(self) -> bool:
        return bool(self._quotes) and not self._writing

    def citation(self, citation: Json) -> None:
        self._quotes.append(citation)
        if not self._writing:
            if len(self._quotes) == 1:
                say("Sentences of the documents, best first:\n")
            _show_quote(citation)

    def delta(self, text: str) -> None:
        if not self.extractive:
            self._writing = True
            sys.stdout.write(clean(text))
            sys.stdout.flush()

    def end_text(self) -> None:
        if self._writing:
            say()

    def finish(self, answer: Json) -> None:
        self.end_text()
        if answer["state"] == "not_found":
            say(answer["text"])
            return
        if self._writing and self._quotes:
            say("\nSources:\n")
            for citation in self._quotes:
                _show_quote(citation)
        own = _own_words(answer) if not self._writing else ""
        if own:
            say(f"In the model's words (each number and name stands in the quotes): {line(own)}\n")
        coverage = answer.get("coverage") or {}
        if coverage.get("sentence"):
            say(coverage["sentence"])
        _show_skipped(coverage.get("skipped") or [])


def _own_words(answer: Json) -> str:
    """The model's own sentence of an extractive answer: what stands before the first quote."""
    text = str(answer["text"])
    return "" if text.startswith("“") else text.split("\n\n“", 1)[0]


def _show_quote(citation: Json) -> None:
    from rich.padding import Padding
    from rich.text import Text

    target = console()
    where = line(citation["document"])
    if citation["page"] is not None:
        label = citation.get("page_label")
        printed = f" (printed {line(label)})" if label and label != str(citation["page"]) else ""
        where += f", page {citation['page']}{printed}"
    proof = ("✓ verified: ", "green") if citation["verified"] else ("✗ not found there, do not rely on it: ", "red")
    number = f"{citation.get('ordinal', '')}"
    _indented(target, Padding(Text(f"[{number}] “{line(citation['quote'])}”"), (0, 0, 0, 1)))
    _indented(target, Padding(Text.assemble(proof, where), (0, 0, 1, len(number) + 4)))


def _indented(target: Any, what: Any) -> None:
    """Print without the trailing blanks that a pipe would get."""
    if target.is_terminal:
        target.print(what)
        return
    with target.capture() as captured:
        target.print(what)
    sys.stdout.write("".join(f"{text.rstrip()}\n" for text in captured.get().splitlines()))


def _show_skipped(skipped: list[Json]) -> None:
    for entry in skipped[:_NAMED]:
        pages = "" if entry["pages"] is None else f", {entry['pages']} of its pages"
        say(f"  not read: {line(entry['document'])}{pages}: {str(entry['reason']).replace('_', ' ')}")
    if len(skipped) > _NAMED:
        say(f"  and {len(skipped) - _NAMED} more: `--json` names them all")


def search(
    query: Annotated[str, typer.Argument(help="Words to search for.")],
    collection: CollectionOption = None,
    limit: Annotated[int, typer.Option(min=1, max=50, help="How many passages.")] = 10,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search for passages, by meaning and by words."""
    from app.cli.collections import choose
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        chosen = choose(api, collection)
        found = api.send("POST", f"/collections/{chosen['id']}/search", {"query": query, "limit": limit})
    if as_json:
        print_json(found)
        return
    if not found["hits"]:
        say(f"Nothing found in {chosen['name']}.")
    for number, hit in enumerate(found["hits"], start=1):
        to = f"-{hit['page_to']}" if hit.get("page_to", hit["page"]) != hit["page"] else ""
        say(f"{number:>2}  {hit['score']:.2f}  {line(hit['document'])}, page {hit['page']}{to}")
        say(f"          {line(hit['text'], limit=320)}")
