"""The command `demo`: sample files in, four questions, and a check that the answers are proved."""

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.output import CommandError, note, say

if TYPE_CHECKING:
    from app.cli.client import Api

COLLECTION = "samples"
DEFAULT_DATA = Path("demo-data")
EPILOG = "\n\n".join(
    (
        "**Examples**",
        "`fullread demo`: the stack keeps running, so that you can go on asking",
        "`fullread demo --exit`: a check of an installation; exit 0 only if every answer is proved",
    )
)


@dataclass(frozen=True, slots=True)
class Question:
    """A question and where its answer stands; `document` None means that the samples do not answer it."""

    language: str
    text: str
    document: str | None = None
    page: int | None = None
    words: str = ""


QUESTIONS = (
    Question(
        "English",
        "What is the Supplier's total liability in a contract year?",
        "contracts/service-agreement.pdf",
        2,
        "EUR 250,000",
    ),
    Question(
        "Spanish", "¿Cuántos días por semana se puede teletrabajar?", "politica-de-teletrabajo.docx", 1, "tres días"
    ),
    Question("Catalan", "Quant costa el duplicat del carnet?", "reglament-biblioteca.md", 1, "4,50 euros"),
    Question("not in the files", "Who is the director of the Museum of Salt and Tides?"),
)


def demo(
    leave: Annotated[
        bool, typer.Option("--exit", help="Stop the stack afterwards; exit 0 only if every answer is proved.")
    ] = False,
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Data directory of the demo.")] = DEFAULT_DATA,
) -> None:
    """Start everything, ingest sample files, ask questions in three languages and one that has no answer."""
    _start(data)
    try:
        proved = _questions(data)
    finally:
        if leave:
            _stop(data)
    if not leave:
        _how_to_go_on(data)
    raise typer.Exit(0 if proved else 1)


def samples_folder() -> Path:
    """The sample files: beside the packages in a clone, inside the package in a wheel. Raises CommandError."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package.parent / "samples" / "files", package / "samples" / "files"):
        if folder.is_dir():
            return folder
    raise CommandError(
        "no_samples", "The sample files are not part of this installation: use a clone of the repository."
    )


def _start(data: Path) -> None:
    from app.cli import stack
    from app.cli.session import find

    samples_folder()
    try:
        target = find(data, None, None)
    except CommandError:
        target = None
    if target is not None and _answers(target.url):
        say(f"The stack of {data} runs already: {target.url}")
        return
    say("Starting the stack (the first time takes a little longer) ...")
    try:
        stack.up(data=data, port=None, detach=True, gguf=None)
    except typer.Exit as ended:
        if ended.exit_code:
            raise


def _answers(url: str) -> bool:
    from app.cli.client import Api

    with Api(url, "") as api:
        return api.lives()


def _stop(data: Path) -> None:
    from app.cli import stack

    say()
    stack.down(data=data)


def _questions(data: Path) -> bool:
    from app.cli.ask import show_answer
    from app.cli.ingest import send
    from app.cli.session import connect
    from app.cli.tracking import PATIENCE_S

    with connect(data, None, None, patience_s=PATIENCE_S) as api:
        say(f"\nSample files ({samples_folder()})\n")
        indexed = send(api, [str(samples_folder())], COLLECTION) == 0
    proved = []
    with connect(data, None, None) as api:
        for number, question in enumerate(QUESTIONS, start=1):
            say(f"\n{'─' * 72}\nQuestion {number} ({question.language}): {question.text}\n")
            try:
                proved.append(is_proved(question, show_answer(api, _collection(api), question.text)))
            except CommandError as failure:
                note(f"Error: {failure}")
                proved.append(False)
            if not proved[-1]:
                note(f"Question {number}: this is not the proved answer that was expected.")
    good = sum(proved)
    say(f"\n{'─' * 72}\n{good} of {len(QUESTIONS)} questions came out as they should: three proved, one not found.")
    return indexed and good == len(QUESTIONS)


def _collection(api: "Api") -> str:
    from app.cli.collections import choose

    return str(choose(api, COLLECTION)["id"])


def is_proved(question: Question, answer: dict[str, Any]) -> bool:
    """Whether a verified quote with the expected words stands where it should, or nothing was found as it should."""
    if question.document is None:
        return bool(answer["state"] == "not_found" and not answer["citations"])
    return any(
        citation["verified"]
        and citation["document"] == question.document
        and citation["page"] == question.page
        and question.words in " ".join(citation["quote"].split())
        for citation in answer["citations"]
    )


def _how_to_go_on(data: Path) -> None:
    from app.cli.session import find

    fullread, option = _command(), f"--data {shlex.quote(str(data))}"
    say(
        f"\nThe stack keeps running at {find(data, None, None).url} (administrator: {data / 'admin.json'}). Go on with:"
    )
    say(f'  {fullread} ask "When does the second set of maps leave the workshop?" -c {COLLECTION} {option}')
    say(f"  {fullread} ingest YOUR-FOLDER -c mine {option}")
    say(f"  {fullread} down {option}")


def _command() -> str:
    """How a person calls this program from here: it need not be on the path."""
    if shutil.which("fullread"):
        return "fullread"
    called = Path(sys.argv[0]).absolute()
    return shlex.quote(str(called.relative_to(Path.cwd()) if called.is_relative_to(Path.cwd()) else called))
