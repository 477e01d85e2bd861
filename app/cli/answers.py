"""How an answer is shown: as it comes or as it is stored; and the commands of `answers`."""

import itertools
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from app.cli.collections import choose, is_id
from app.cli.options import CollectionOption, DataOption, JsonOption, KeyOption, LimitOption, UrlOption
from app.cli.output import clean, console, count, line, print_json, say, table, when, wrong_use

Json = dict[str, Any]

commands = typer.Typer(
    help="Your answers of before: the list, and one with its quotes.",
    epilog="\n\n".join(
        (
            "**Examples**",
            "`fullread answers -c contracts`: the last ones, newest first",
            "`fullread answers show ID`: one with quotes, verdicts and coverage, also of an analysis that was queued",
            "`fullread ask --again ID`: the same question once more, and what changed",
        )
    ),
)

_ROUTES = {"full": "full pass", "retrieval": "retrieval"}
#: Documents that are named as not read.
_NAMED = 20
_REASONS = {
    "budget": "over the budget of one full pass",
    "cancelled": "its ingestion was cancelled",
    "deleting": "is being deleted",
    "failed": "could not be read",
    "in_progress": "is still being indexed",
    "needs_ocr": "needs text recognition",
    "needs_password": "needs a password",
}
_SENTENCES = "Sentences of the documents, best first:\n"
_UNPROVED = "Not proved, do not rely on it"


class AnswerView:
    """What of an answer has been shown. Quotes that come before any text are the answer itself (extractive).

    On a full pass quotes are held until the end: only then it is known whether they prove verdicts, are the answer or
    are the sources of a text.
    """

    def __init__(self) -> None:
        self._quotes: list[Json] = []
        self._writing = False
        self._full = False
        self._reasons: list[str] | None = None
        self._verdicts = 0

    @property
    def extractive(self) -> bool:
        """Whether quotes have come, and no text before them."""
        return bool(self._quotes) and not self._writing

    def routed(self, route: str, reasons: Sequence[object], *, by_document: bool = False) -> None:
        """How the answer is looked for, and why."""
        self._full = route == "full"
        self._reasons = [str(reason) for reason in reasons]
        how = f"{_ROUTES.get(route, line(route))}{', document by document' if by_document else ''}"
        say(f"Route: {how}{_why(self._reasons)}\n")

    def citation(self, citation: Json) -> None:
        """A quote, when it comes."""
        self._quotes.append(citation)
        if not self._writing and not self._full:
            if len(self._quotes) == 1:
                say(_SENTENCES)
            _show_quotes([citation])

    def verdict(self, verdict: Json) -> None:
        """What one document says, when it comes: one line."""
        self._verdicts += 1
        note = f": {line(verdict['note'])}" if verdict.get("note") else ""
        say(f"  {_verdict_word(verdict):<15} {line(verdict['document'])}{note}")

    def delta(self, text: str) -> None:
        """A piece of text, when it comes."""
        if not self.extractive and not self._verdicts:
            self._writing = True
            sys.stdout.write(clean(text))
            sys.stdout.flush()

    def end_text(self) -> None:
        """End the line that text was written on."""
        if self._writing:
            say()

    def finish(self, answer: Json) -> None:
        """Everything that has not been shown yet."""
        self.end_text()
        verdicts = answer.get("verdicts") or []
        if verdicts:
            if self._verdicts:
                say()
            _show_verdicts(answer, verdicts)
        elif answer["state"] == "not_found":
            say(answer["text"])
        else:
            self._finish_text(answer)
        self._finish_facts(answer)

    def _finish_text(self, answer: Json) -> None:
        generative = self._writing or answer.get("form") == "generative"
        if generative and not self._writing:
            say(answer["text"])
        if self._quotes and (self._writing or self._full):
            say("\nSources:\n" if generative else _SENTENCES)
            _show_quotes(self._quotes)
        own = "" if generative else _own_words(answer)
        if own:
            say(f"In the model's words (each number and name stands in the quotes): {line(own)}\n")

    def _finish_facts(self, answer: Json) -> None:
        if self._reasons is not None:
            for reason in answer.get("route_reasons") or ():
                if reason not in self._reasons:
                    say(f"Note: {line(reason)}")
        coverage = answer.get("coverage") or {}
        if coverage.get("sentence") and (answer["state"] != "not_found" or answer.get("verdicts")):
            say(line(coverage["sentence"]))
        _show_unread(coverage.get("skipped") or [])
        if answer["route"] == "full":
            _show_cost(answer)
        if answer.get("id"):
            say(f"`fullread ask --again {line(answer['id'])}` repeats this and says what changed.")


def show_changes(answer: Json) -> None:
    """What differs from the answer that was repeated."""
    changes = answer.get("changes")
    if changes is None:
        return
    say()
    if not changes:
        say("Nothing changed but the time.")
        return
    say(f"Changed since the answer before ({line(answer.get('again_of'))}):")
    for change in changes:
        values = [line(change[side], limit=240) for side in ("before", "after") if change.get(side) is not None]
        say(f"  - {line(change['what'])}{': ' if values else ''}{' -> '.join(values)}")


def _why(reasons: Sequence[str]) -> str:
    """The first reason as the end of a sentence, the others (what each route costs) behind it."""
    if not reasons:
        return "."
    first, *others = (line(reason) for reason in reasons)
    acronym = first[1:2].isupper()
    because = first if acronym else first[:1].lower() + first[1:]
    return " ".join((f", because {because.removesuffix('.')}.", *others))


def _own_words(answer: Json) -> str:
    """The model's own sentence of an extractive answer: what stands before the first quote."""
    text = str(answer["text"])
    return "" if text.startswith("“") else text.split("\n\n“", 1)[0]


def _show_quotes(citations: Iterable[Json]) -> None:
    """Quotes with their numbers, where they stand, and whether they were found there."""
    from rich.padding import Padding
    from rich.text import Text

    target = console()
    for citation in citations:
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


def _verdict_word(verdict: Json) -> str:
    word = line(verdict["verdict"])
    return f"{word}, unproved" if _unproved(verdict) else word


def _unproved(verdict: Json) -> bool:
    """A yes or no that no verified quote proves; silence needs no proof."""
    return verdict["verdict"] != "silent" and not verdict["proved"]


def _show_verdicts(answer: Json, verdicts: list[Json]) -> None:
    """The count, then every document under what it says: those that prove it with their quotes, the others by name."""
    quotes = {citation.get("ordinal"): citation for citation in answer.get("citations") or ()}
    say(f"{line(answer['text'].split(chr(10), 1)[0])}\n")
    groups = (
        ("Yes", [v for v in verdicts if v["verdict"] == "yes" and not _unproved(v)]),
        ("No, it says the opposite", [v for v in verdicts if v["verdict"] == "no" and not _unproved(v)]),
        ("Silent, nothing about it was found", [v for v in verdicts if v["verdict"] == "silent"]),
        (_UNPROVED, [v for v in verdicts if _unproved(v)]),
    )
    for heading, members in groups:
        if not members:
            continue
        say(f"{heading} ({len(members):,} of {count(len(verdicts), 'document')}):")
        for verdict in members:
            note = f": {line(verdict['note'])}" if verdict.get("note") else ""
            said = f" ({line(verdict['verdict'])})" if heading == _UNPROVED else ""
            say(f"  {line(verdict['document'])}{said}{note}")
            _show_quotes(quotes[ordinal] for ordinal in verdict.get("ordinals") or () if ordinal in quotes)
        say()


def _show_unread(skipped: list[Json]) -> None:
    """What was not read and why; what the caller left out itself in one line."""
    chosen = [entry for entry in skipped if entry["reason"] == "not_selected"]
    others = [entry for entry in skipped if entry["reason"] != "not_selected"]
    for entry in others[:_NAMED]:
        reason = str(entry["reason"])
        why = _REASONS.get(reason) or line(reason).replace("_", " ")
        say(f"  not read: {line(entry['document'])}{_share(entry)}: {why}")
    if len(others) > _NAMED:
        say(f"  and {len(others) - _NAMED:,} more: `--json` names them all")
    if chosen:
        pages = sum(entry["pages"] or 0 for entry in chosen)
        say(f"  not read, as you chose others: {count(len(chosen), 'document')}, {count(pages, 'page')}")


def _share(entry: Json) -> str:
    if entry["pages"] is None:
        return ""
    whole = entry.get("whole_document")
    return f", {count(entry['pages'], 'page')}" if whole else f", {entry['pages']:,} of its pages"


def _show_cost(answer: Json) -> None:
    """Tokens of a full pass: what was sent, what the engine had read before."""
    tokens = answer.get("tokens") or {}
    sent = tokens.get("engine") or tokens.get("counted")
    if not sent:
        return
    prompts = len((answer.get("run") or {}).get("prompts") or ())
    among = f" in {count(prompts, 'prompt')}" if prompts else ""
    cached = tokens.get("cached")
    known = "" if cached is None else f", {cached:,} of them from the engine's cache"
    seconds = f", {answer['seconds']:,.1f} s" if answer.get("seconds") is not None else ""
    say(f"Sent {count(sent, 'token')}{among}{known}{seconds}.")


@commands.callback(invoke_without_command=True)
def list_or_command(
    context: typer.Context,
    collection: CollectionOption = None,
    limit: LimitOption = 20,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Your answers of before: the list, and one with its quotes."""
    if context.invoked_subcommand is None:
        list_answers(collection, limit, data, url, api_key, as_json)


@commands.command("list")
def list_answers(
    collection: CollectionOption = None,
    limit: LimitOption = 20,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Your last answers, newest first; of all collections when none is named."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        only = choose(api, collection)["id"] if collection is not None else None
        found = list(itertools.islice(api.items("/answers", collection_id=only), limit))
    if as_json:
        print_json({"answers": found})
    elif not found:
        say('No answers yet. `fullread ask "..."` gets one.')
    else:
        rows = [(when(a["created_at"]), a["state"], a["route"], line(a["question"], limit=100), a["id"]) for a in found]
        table(("asked (UTC)", "state", "route", "question", "id"), rows)


@commands.command()
def show(
    answer_id: Annotated[str, typer.Argument(metavar="ID", help="The answer's id.")],
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """One answer with its quotes, verdicts and coverage."""
    from app.cli.session import connect

    if not is_id(answer_id):
        raise wrong_use("Name the answer by its id: `fullread answers` lists them.")
    with connect(data, url, api_key) as api:
        found = api.get(f"/answers/{answer_id}")
    if as_json:
        print_json(found)
    else:
        show_stored(found)


def show_stored(answer: Json) -> None:
    """An answer that was recorded, in the form in which it is shown when it is made."""
    say(f"Question: {line(answer['question'])}")
    say(f"Asked:    {when(answer['created_at'])} UTC")
    if answer["state"] not in ("succeeded", "not_found"):
        job = f" (job {line(answer['job_id'])})" if answer.get("job_id") else ""
        why = f": {line(answer['message'])}" if answer.get("message") else "."
        say(f"State:    {line(answer['state'])}{job}{why}")
        return
    view = AnswerView()
    by_document = bool((answer.get("run") or {}).get("by_document"))
    view.routed(answer["route"], (), by_document=by_document)
    if answer["form"] == "generative" and answer["state"] == "succeeded" and not answer.get("verdicts"):
        view.delta(answer["text"])
    for citation in answer["citations"]:
        view.citation(citation)
    view.finish(answer)
