"""The commands `ask` and `search`: answers as they are found, with what proves them."""

import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self

import typer

from app.cli.answers import AnswerView, show_changes
from app.cli.options import CollectionOption, DataOption, JsonOption, KeyOption, UrlOption
from app.cli.output import (
    EXIT_INTERRUPTED,
    EXIT_NOT_FOUND,
    CommandError,
    console,
    line,
    note,
    print_json,
    say,
    wrong_use,
)

if TYPE_CHECKING:
    from rich.status import Status

    from app.cli.client import Api

Json = dict[str, Any]
Events = Generator[tuple[str, Json], None, None]

ASK_EPILOG = "\n\n".join(
    (
        "**Examples**",
        '`fullread ask "What is the liability cap?" -c contracts`',
        (
            '`fullread ask "How many contracts can be ended without cause?" -c contracts --route full`: asks each'
            " document, counts, and lists those that say no or nothing"
        ),
        '`fullread ask "What changed?" -c contracts --document lease.pdf --document "amendments/*.pdf"`: only these',
        "`fullread ask --again ID`: the same question once more, and what changed since",
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
_PHASES = {
    "searching": "Searching",
    "routed": "Choosing what to read",
    "reading": "Reading",
    "writing": "Writing",
    "merging": "Putting the sections' findings together",
    "checking": "Checking the quotes",
}
#: Without a terminal: seconds between two lines about how far a full pass is.
_LINE_EVERY_S = 10.0


class Route(StrEnum):
    """How an answer is looked for."""

    AUTO = "auto"
    RETRIEVAL = "retrieval"
    FULL = "full"


def ask(
    question: Annotated[
        str | None,
        typer.Argument(help="The question, in quotes, in any language of the documents.", show_default=False),
    ] = None,
    collection: CollectionOption = None,
    route: Annotated[
        Route,
        typer.Option(
            help="retrieval searches and reads the best passages: seconds. full reads every page: the price grows with"
            " the pages (a second question about the same pages is much cheaper), and only it can say how many, or that"
            " something stands nowhere. auto chooses, and says why."
        ),
    ] = Route.AUTO,
    documents: Annotated[
        list[str] | None,
        typer.Option(
            "--document", metavar="NAME", help="Only this document: name, quoted glob pattern or id; repeatable."
        ),
    ] = None,
    again: Annotated[
        str | None, typer.Option("--again", metavar="ID", help="Ask a stored question again and say what changed.")
    ] = None,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask a question: an answer with quotes that were looked up in the documents. Exit 4 when nothing was found."""
    from app.cli.collections import choose
    from app.cli.selection import document_ids
    from app.cli.session import connect

    if again is not None:
        _refuse_beside_again(question, collection, route, documents, again)
    elif question is None:
        raise wrong_use("Give a question, in quotes, or an answer to repeat with --again ID.")
    with connect(data, url, api_key) as api:
        if again is not None:
            answer = repeat_answer(api, again, as_json=as_json)
        else:
            chosen = choose(api, collection)
            only = document_ids(api, chosen, documents or ())
            answer = show_answer(api, chosen["id"], question or "", route.value, only, as_json=as_json)
    if as_json:
        print_json(answer)
    if answer["state"] == "not_found":
        raise typer.Exit(EXIT_NOT_FOUND)


def _refuse_beside_again(
    question: str | None, collection: str | None, route: Route, documents: list[str] | None, again: str
) -> None:
    from app.cli.collections import is_id

    if question is not None or collection is not None or route is not Route.AUTO or documents:
        raise wrong_use(
            "--again repeats the stored question on its collection, route and documents: leave out the question,"
            " --collection, --route and --document."
        )
    if not is_id(again):
        raise wrong_use("--again needs the id of an answer: `fullread answers` lists them.")


def show_answer(
    api: "Api",
    collection_id: str,
    question: str,
    route: str = "auto",
    document_ids: Sequence[str] = (),
    *,
    as_json: bool = False,
) -> Json:
    """Ask, show phases, quotes and text as they come, then what was read; the whole answer.

    With `as_json` nothing goes to stdout. Raises CommandError, and typer.Exit after Ctrl-C.
    """
    return _shown(api.ask_events(collection_id, question, route, document_ids), as_json=as_json)


def repeat_answer(api: "Api", answer_id: str, *, as_json: bool = False) -> Json:
    """Ask a stored question again and show the new answer and what changed; the whole answer. Raises CommandError."""
    if not as_json:
        say(f"Question: {line(api.get(f'/answers/{answer_id}')['question'])}")
    answer = _shown(api.again_events(answer_id), as_json=as_json)
    if not as_json:
        show_changes(answer)
    return answer


def _shown(events: Events, *, as_json: bool) -> Json:
    view = None if as_json else AnswerView()
    with closing(events):
        answer = _follow(events, view)
    if view is not None:
        view.finish(answer)
    return answer


def _follow(events: Iterator[tuple[str, Json]], view: AnswerView | None) -> Json:
    """Read the events to the answer; Ctrl-C and a cut line say what goes on at the server."""
    known: dict[str, str] = {}  # ids of the answer and, once it is queued, of its job
    try:
        with _Steps(quiet=view is None) as steps:
            for kind, data in events:
                if kind == "status":
                    known.update({name: line(data[name]) for name in ("answer_id", "job_id") if data.get(name)})
                    _status(data, view, steps)
                elif kind == "error":
                    raise CommandError.of(data)
                elif kind == "answer":
                    return data
                elif view is not None:
                    _piece(kind, data, view, steps)
    except KeyboardInterrupt:
        _interrupted(known, view)
    except CommandError as failure:
        if view is not None:
            view.end_text()
        if failure.code == "unreachable" and "job_id" in known:
            note(f"The connection is gone. {_goes_on(known)}")
        raise
    if view is not None:
        view.end_text()
    goes_on = _goes_on(known) if "job_id" in known else "Ask again."
    raise CommandError("answer_cut", f"The answer was cut off: the server went away. {goes_on}")


def _status(data: Json, view: AnswerView | None, steps: "_Steps") -> None:
    if data.get("phase") == "routed" and view is not None:
        with steps.paused():
            view.routed(str(data.get("route")), data.get("reasons") or (), by_document=bool(data.get("by_document")))
    else:
        steps.show(data)


def _piece(kind: str, data: Json, view: AnswerView, steps: "_Steps") -> None:
    if kind == "delta":
        if not view.extractive:
            steps.stop()
        view.delta(str(data.get("text", "")))
        return
    with steps.paused():
        if kind == "citation":
            view.citation(data)
        elif kind == "verdict":
            view.verdict(data)


def _interrupted(known: dict[str, str], view: AnswerView | None) -> NoReturn:
    if view is not None:
        view.end_text()
    if "job_id" in known:
        note(f"Stopped watching. {_goes_on(known)}")
    else:
        note("Stopped. The server stops, too: nothing goes on in the background.")
    raise typer.Exit(EXIT_INTERRUPTED)


def _goes_on(known: dict[str, str]) -> str:
    job = known["job_id"]
    shown = (
        f"`fullread answers show {known['answer_id']}` shows its answer when it is done, "
        if "answer_id" in known
        else ""
    )
    return (
        f"The analysis goes on as job {job}: `fullread jobs show {job}` says how far it is, {shown}"
        f"`fullread jobs cancel {job}` stops it."
    )


def step_words(data: Json) -> str:
    """A status event as a phrase: what the server does now."""
    phase = str(data.get("phase", "working"))
    if phase == "reading" and "section" in data:
        document = f" ({line(data['document'], limit=60)})" if data.get("document") else ""
        return f"Reading section {line(data['section'])} of {line(data.get('sections', '?'))}{document}"
    if phase == "queued":
        place = f"place {line(data['position'])} in the queue" if data.get("position") else "next in the queue"
        return f"The model server is taken: {place}. Ctrl-C stops the watching only, the analysis goes on"
    return _PHASES.get(phase) or line(phase).replace("_", " ").capitalize()


class _Steps:
    """What the server does now, on stderr: a moving line on a terminal, a line now and then elsewhere.

    When `quiet` stderr gets the moving line only.
    """

    def __init__(self, *, quiet: bool) -> None:
        # A text that is streamed to the same terminal would run into the moving line, one in a pipe would not be seen.
        live = sys.stderr.isatty() and (quiet or sys.stdout.isatty())
        self._moving: Status | None = console(errors=True).status("Searching ...") if live else None
        self._quiet = quiet
        self._spoke_at = time.monotonic()

    def __enter__(self) -> Self:
        if self._moving is not None:
            self._moving.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def show(self, data: Json) -> None:
        """Say a status event. Places in the queue always get a line, the rest when the last line is some time ago."""
        if self._moving is not None:
            from rich.text import Text  # a plain string would be read as markup

            self._moving.update(Text(f"{step_words(data)} ..."))
        elif not self._quiet and self._due(data):
            self._spoke_at = time.monotonic()
            note(f"{step_words(data)} ...")

    def _due(self, data: Json) -> bool:
        return data.get("phase") == "queued" or time.monotonic() - self._spoke_at >= _LINE_EVERY_S

    def stop(self) -> None:
        """Off the terminal's line for good."""
        if self._moving is not None:
            self._moving.stop()
            self._moving = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Off the terminal's line while something else is written."""
        if self._moving is not None:
            self._moving.stop()
        yield
        if self._moving is not None:
            self._moving.start()


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
