"""The command `demo`: sample files in, five questions, and a check that quotes, coverage and verdicts are right."""

import shlex
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli import expectations
from app.cli.expectations import QUESTIONS, REPEATED, Question
from app.cli.output import EXIT_NOT_ALL_INDEXED, CommandError, note, say, table

if TYPE_CHECKING:
    from app.cli.client import Api

COLLECTION = "demo"
DEFAULT_DATA = Path("demo-data")
EPILOG = "\n\n".join(
    (
        "**Examples**",
        "`fullread demo`: the stack keeps running, so that you can go on asking",
        "`fullread demo --exit`: a check of an installation; exit 0 only if every answer is as expected",
    )
)
_RULE = "─" * 72


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question that was asked: what came, and what of it is not as expected."""

    label: str
    question: Question
    answer: dict[str, Any] | None
    shortfalls: list[str] = field(default_factory=list)


def demo(
    leave: Annotated[
        bool, typer.Option("--exit", help="Stop the stack afterwards; exit 0 only if every answer is as expected.")
    ] = False,
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="Data directory of the demo.")] = DEFAULT_DATA,
) -> None:
    """Start everything, ingest sample files, ask five questions in three languages, check what comes."""
    _start(data)
    try:
        good = _questions(data)
    finally:
        if leave:
            _stop(data)
    if not leave:
        _how_to_go_on(data)
    raise typer.Exit(0 if good else 1)


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
    from app.cli.ingest import send
    from app.cli.session import connect
    from app.cli.tracking import PATIENCE_S

    with connect(data, None, None, patience_s=PATIENCE_S) as api:
        say(f"\nSample files ({samples_folder()})\n")
        # One of them is a scanned page that cannot be read yet; the coverage of each answer says whether it is the one.
        status = send(api, [str(samples_folder())], COLLECTION)
    asked: list[_Asked] = []
    with connect(data, None, None) as api:
        for number, question in enumerate(QUESTIONS, start=1):
            asked.append(_ask(api, f"{number} {question.kind}, {question.language}", question))
        asked.append(_repeat(api, next(one for one in asked if one.question is REPEATED)))
    _show_outcome(asked)
    return status in (0, EXIT_NOT_ALL_INDEXED) and not any(one.shortfalls for one in asked)


def _ask(api: "Api", label: str, question: Question) -> _Asked:
    from app.cli.ask import show_answer

    say(f"\n{_RULE}\nQuestion {label}: {question.text}\n")
    try:
        answer = show_answer(api, _collection(api), question.text, question.route)
    except CommandError as failure:
        return _Asked(label, question, None, [str(failure)])
    return _Asked(label, question, answer, expectations.shortfalls(question, answer))


def _repeat(api: "Api", first: _Asked) -> _Asked:
    """The same full pass a second time: the engine has its prompts in the cache."""
    from app.cli.ask import repeat_answer

    label = f"{first.label.split(maxsplit=1)[0]} again"
    say(f"\n{_RULE}\nQuestion {label}: the same full pass on the same documents\n")
    if first.answer is None:
        return _Asked(label, first.question, None, ["the first time there was no answer"])
    try:
        answer = repeat_answer(api, first.answer["id"])
    except CommandError as failure:
        return _Asked(label, first.question, None, [str(failure)])
    say(f"\nThe first time:  {_cost(first.answer)}\nThe second time: {_cost(answer)}")
    found = [*expectations.shortfalls(first.question, answer), *expectations.repeat_shortfalls(answer)]
    return _Asked(label, first.question, answer, found)


def _cost(answer: dict[str, Any]) -> str:
    share = expectations.cached_share(answer)
    known = "what was in its cache the engine does not say" if share is None else f"{share:.0%} from the engine's cache"
    return f"{answer['seconds']:,.1f} s for {answer['tokens']['engine'] or 0:,} prompt tokens, {known}"


def _show_outcome(asked: list[_Asked]) -> None:
    say(f"\n{_RULE}\n")
    table(
        ("question", "route", "state", "verified quotes", "coverage", "as expected"),
        [_row(one) for one in asked],
        right=("verified quotes",),
    )
    bad = [one for one in asked if one.shortfalls]
    say()
    for one in bad:
        for shortfall in one.shortfalls:
            note(f"Question {one.label}: {shortfall}.")
    say(
        f"{len(asked) - len(bad)} of {len(asked)} answers are as expected: quotes verified in their place, verdicts,"
        " coverage that adds up."
    )


def _row(one: _Asked) -> tuple[object, ...]:
    met = "yes" if not one.shortfalls else "no"
    if one.answer is None:
        return one.label, one.question.route, "failed", "", "-", met
    taken = one.answer["route"]
    route = taken if one.question.route == taken else f"{one.question.route}: {taken}"
    quotes = expectations.verified(one.answer)
    return one.label, route, one.answer["state"], quotes, expectations.coverage_line(one.answer), met


def _collection(api: "Api") -> str:
    from app.cli.collections import choose

    return str(choose(api, COLLECTION)["id"])


def _how_to_go_on(data: Path) -> None:
    from app.cli.session import find

    fullread, option = _command(), f"--data {shlex.quote(str(data))}"
    say(
        f"\nThe stack keeps running at {find(data, None, None).url} (administrator: {data / 'admin.json'}). Go on with:"
    )
    say(f'  {fullread} ask "When does the second set of maps leave the workshop?" -c {COLLECTION} {option}')
    say(f"  {fullread} answers -c {COLLECTION} {option}")
    say(f"  {fullread} ingest YOUR-FOLDER -c mine {option}")
    say(f"  {fullread} down {option}")


def _command() -> str:
    """How a person calls this program from here: it need not be on the path."""
    if shutil.which("fullread"):
        return "fullread"
    called = Path(sys.argv[0]).absolute()
    return shlex.quote(str(called.relative_to(Path.cwd()) if called.is_relative_to(Path.cwd()) else called))
