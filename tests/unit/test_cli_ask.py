"""`ask` against a scripted server: what is sent, and what of the answer is shown."""

import json
import uuid

import pytest

from tests.support.answer_events import (
    ANSWER,
    JOB,
    answer,
    citation,
    events,
    job,
    queued,
    reading,
    routed,
    skipped,
    verdict,
)
from tests.support.scripted_api import ScriptedApi
from tests.unit.test_cli import Cli, api, bare, cli, place

__all__ = ["api", "bare", "cli", "place"]


# The question as it is sent


def test_ask_json_is_the_answer_document(api: ScriptedApi, cli: Cli) -> None:
    api.collection("letters")
    api.events = events(answer(), routed("retrieval", "You asked for it."), ("citation", citation()), queued(1))
    outcome = cli("ask", "What is the cap?", "--collection", "letters", "--route", "retrieval", "--json")
    assert (outcome.status, outcome.json, outcome.err) == (0, answer(), "")
    assert api.bodies == [{"question": "What is the cap?", "route": "retrieval"}]


@pytest.mark.parametrize("route", ["auto", "retrieval", "full"])
def test_each_route_can_be_asked_for(api: ScriptedApi, cli: Cli, route: str) -> None:
    api.collection("letters")
    api.events = events(answer())
    assert cli("ask", "Why?", "--route", route).status == 0
    assert api.bodies[0]["route"] == route


def test_what_the_server_calls_invalid_is_wrong_use(api: ScriptedApi, cli: Cli) -> None:
    api.collection("letters")
    outcome = cli("ask", " ", "--json")
    assert (outcome.status, outcome.json["code"]) == (2, "bad_question")


@pytest.fixture
def contracts(api: ScriptedApi) -> dict[str, str]:
    """A collection of two pages of documents; ids by name."""
    made = api.collection("contracts")["id"]
    api.events = events(answer())
    names = ["lease.pdf", "nda/acme.pdf", "nda/beta.pdf", "a[1].pdf", "a1.pdf", *(f"{n:03}.txt" for n in range(250))]
    return {name: api.document(made, name)["id"] for name in names}


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        (["lease.pdf"], ["lease.pdf"]),
        (["249.txt", "lease.pdf", "249.txt"], ["249.txt", "lease.pdf"]),
        (["nda/*"], ["nda/acme.pdf", "nda/beta.pdf"]),
        (["*acme.pdf"], ["nda/acme.pdf"]),
        (["24?.txt"], [f"{n}.txt" for n in range(240, 250)]),
        (["a[1].pdf"], ["a[1].pdf"]),
        (["a[0-9].pdf"], ["a1.pdf"]),
    ],
)
def test_documents_are_chosen_by_name_or_pattern(
    api: ScriptedApi, cli: Cli, contracts: dict[str, str], wanted: list[str], meant: list[str]
) -> None:
    options = [option for name in wanted for option in ("--document", name)]
    assert cli("ask", "Why?", *options).status == 0
    assert api.bodies[0]["document_ids"] == [contracts[name] for name in meant]


def test_a_document_is_chosen_by_its_id(api: ScriptedApi, cli: Cli, contracts: dict[str, str]) -> None:
    assert cli("ask", "Why?", "--document", contracts["lease.pdf"]).status == 0
    assert api.bodies[0]["document_ids"] == [contracts["lease.pdf"]]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("Lease.pdf", "There is no document 'Lease.pdf' in contracts: did you mean lease.pdf?"),
        ("acme.pdf", "There is no document 'acme.pdf' in contracts: did you mean nda/acme.pdf?"),
        ("leese.pdf", "There is no document 'leese.pdf' in contracts: did you mean lease.pdf?"),
        ("qqqqqq", "There is no document 'qqqqqq' in contracts: see `fullread documents -c contracts`."),
        ("zzz/*", "No document of contracts matches 'zzz/*': see `fullread documents -c contracts`."),
    ],
)
def test_an_unknown_document_is_named_with_what_may_be_meant(
    api: ScriptedApi, cli: Cli, contracts: dict[str, str], wanted: str, said: str
) -> None:
    outcome = cli("ask", "Why?", "--document", "lease.pdf", "--document", wanted, "--json")
    assert (outcome.status, outcome.json["code"], outcome.json["detail"]) == (1, "document_not_found", said)
    assert not api.bodies


# The answer as it is shown


def test_ask_without_finding_is_four_and_says_where_it_may_still_stand(api: ScriptedApi, cli: Cli) -> None:
    api.collection("letters")
    nothing = answer(state="not_found", text="Not found in 2 documents, 9 pages searched.", citations=[])
    api.events = events(nothing)
    assert cli("ask", "Who?", "-c", "letters", "--json").status == 4
    spoken = cli("ask", "Who?", "-c", "letters")
    assert spoken.status == 4
    assert spoken.out.splitlines() == [
        "Not found in 2 documents, 9 pages searched.",
        "  not read: scan.pdf, 3 of its pages: needs text recognition",
        f"`fullread ask --again {ANSWER}` repeats this and says what changed.",
    ]


def test_ask_shows_quotes_with_their_proof(api: ScriptedApi, cli: Cli) -> None:
    api.collection("letters")
    api.events = events(answer(), ("citation", citation()), ("delta", {"text": answer()["text"]}))
    out = cli("ask", "What is the cap?").out
    assert "[1] “The cap is EUR 5.”" in out
    assert "✓ verified: contracts/msa.pdf, page 4 (printed 3)" in out
    assert "It is EUR 5." in out
    assert out.count("“The cap is EUR 5.”") == 1
    assert "Read 2 pages." in out


def test_ask_streams_a_models_words_and_warns_of_what_is_not_proved(api: ScriptedApi, cli: Cli) -> None:
    api.collection("letters")
    unproved = citation(verified=False, page=None, quote="It is EUR 6.")
    final = answer(form="generative", text="The cap is EUR 6 [1].", citations=[unproved])
    api.events = events(
        final, ("delta", {"text": "The cap is "}), ("delta", {"text": "EUR 6 [1]"}), ("citation", unproved),
        ("delta", {"text": "."}),
    )  # fmt: skip
    out = cli("ask", "What is the cap?").out
    assert out.startswith("The cap is EUR 6 [1].\n")
    assert "✗ not found there, do not rely on it: contracts/msa.pdf" in out
    assert "✓" not in out


HOSTILE = "Red \x1b[31mink\x1b]0;owned\x07 \x9b2J [bold]markup[/bold] :smile: \u202eesrever\u2028line\x85next"


def test_nothing_from_a_document_steers_the_terminal(api: ScriptedApi, cli: Cli) -> None:
    api.collection("letters")
    hostile = citation(quote=HOSTILE, document=f"{HOSTILE}.pdf", page_label=HOSTILE)
    verdict = {
        "document": HOSTILE,
        "document_id": "d",
        "verdict": "yes",
        "proved": False,
        "ordinals": [1],
        "note": HOSTILE,
    }
    coverage = {"sentence": HOSTILE, "skipped": [skipped(HOSTILE, 1, HOSTILE)]}
    final = answer(
        text=HOSTILE, citations=[hostile], question=HOSTILE, coverage=coverage, route_reasons=[HOSTILE], route="full",
        again_of=ANSWER, changes=[{"what": HOSTILE, "before": HOSTILE, "after": None}],
    )  # fmt: skip
    counted = {**final, "verdicts": [verdict]}
    api.answers[ANSWER] = counted
    api.hits = [{"document": HOSTILE, "document_id": "d", "page": 1, "page_to": 2, "text": HOSTILE, "score": 0.5}]
    api.document(next(iter(api.collections)), HOSTILE, message=HOSTILE, code="corrupt")
    api.jobs[JOB] = job(message=HOSTILE, code="failed", progress={HOSTILE: HOSTILE})
    steps = routed(HOSTILE, HOSTILE), reading(1, 2, HOSTILE), queued(1)
    spoken = []
    api.events = events(final, *steps, ("citation", hostile), ("delta", {"text": HOSTILE}))
    spoken += [cli("ask", "Why?"), cli("search", "ink"), cli("documents"), cli("answers"), cli("jobs", "show", JOB)]
    api.events = events(counted, *steps, ("citation", hostile), ("verdict", verdict))
    spoken += [cli("ask", "--again", ANSWER), cli("answers", "show", ANSWER)]
    api.events = events(final, ("delta", {"text": HOSTILE}), ("citation", hostile))
    spoken += [cli("ask", "Why?"), cli("documents", "show", HOSTILE, "--page", "1")]
    for out in (text for outcome in spoken for text in (outcome.out, outcome.err)):
        assert not [c for c in out if ord(c) < 32 and c != "\n"]
        assert not set(out) & set("\x7f\x85\x9b\u202e")
    assert all("Red" in outcome.out for outcome in spoken)
    assert all("[bold]markup[/bold] :smile:" in outcome.out for outcome in spoken[:-1])
    raw = cli("ask", "Why?", "--json").out
    assert not set(raw) & set("\x1b\x07\x7f\x85\x9b\u202e")
    assert json.loads(raw)["citations"][0]["quote"] == HOSTILE


def test_an_error_in_the_stream_is_a_failure(api: ScriptedApi, cli: Cli) -> None:
    api.collection("letters")
    api.events = [("error", {"status": 503, "code": "engine_busy", "detail": "The engine is busy."})]
    outcome = cli("ask", "Why?")
    assert (outcome.status, outcome.err) == (1, "Error: The engine is busy.\n")
    assert cli("ask", "Why?", "--json").json["code"] == "engine_busy"


def test_a_stream_without_an_end_is_a_failure(api: ScriptedApi, cli: Cli) -> None:
    api.collection("letters")
    api.events = [("citation", citation())]
    assert cli("ask", "Why?").status == 1
    assert cli("ask", "Why?", "--json").json["code"] == "answer_cut"


# Route, full pass, coverage


def test_the_route_and_its_reasons_stand_before_the_answer(api: ScriptedApi, cli: Cli) -> None:
    api.collection("letters")
    reasons = ["The question asks for all documents.", "A full pass reads 9 tokens."]
    final = answer(route="full", route_reasons=[*reasons, "2 quotes were not found on the pages named."])
    api.events = events(final, routed("full", *reasons), ("citation", citation()))
    out = cli("ask", "What is the cap?").out.splitlines()
    assert out[0] == "Route: full pass, because the question asks for all documents. A full pass reads 9 tokens."
    assert "Note: 2 quotes were not found on the pages named." in out
    assert sum("all documents" in text for text in out) == 1
    api.events = events(answer(), routed("retrieval", "EUR is a rare word"))
    assert cli("ask", "Why?").out.startswith("Route: retrieval, because EUR is a rare word.\n")


def test_a_full_pass_shows_what_it_sent_and_what_the_engine_had_read_before(api: ScriptedApi, cli: Cli) -> None:
    api.collection("letters")
    tokens = {"counted": 12345, "engine": 12345, "output": 60, "cached": 11900}
    run = {"prompts": [{"purpose": f"section {n} of 9"} for n in range(9)]}
    final = answer(route="full", tokens=tokens, run=run, seconds=1.34)
    api.events = events(final, routed("full"), ("citation", citation()))
    said = "Sent 12,345 tokens in 9 prompts, 11,900 of them from the engine's cache, 1.3 s."
    assert said in cli("ask", "Why?").out
    api.events = events({**final, "tokens": {**tokens, "cached": None}}, routed("full"))
    assert "Sent 12,345 tokens in 9 prompts, 1.3 s." in cli("ask", "Why?").out
    api.events = events({**final, "route": "retrieval"}, routed("retrieval"))
    assert "Sent" not in cli("ask", "Why?").out


@pytest.mark.parametrize("form", ["extractive", "generative"])
def test_quotes_of_a_full_pass_come_when_it_is_known_what_they_are(api: ScriptedApi, cli: Cli, form: str) -> None:
    """A merge sends its quotes first and its text as one piece, as the extractive form does."""
    api.collection("letters")
    text = "“The cap is EUR 5.” [1]" if form == "extractive" else "The cap is EUR 5 [1]."
    final = answer(route="full", form=form, text=text)
    api.events = events(final, routed("full"), ("citation", citation()), ("delta", {"text": text}))
    out = cli("ask", "Why?").out
    assert out.count("“The cap is EUR 5.”") == 1
    if form == "extractive":
        assert "Sentences of the documents, best first:\n\n [1] “The cap is EUR 5.”" in out
        assert "In the model's words" not in out
    else:
        assert "\nThe cap is EUR 5 [1].\n\nSources:\n\n [1] “The cap is EUR 5.”" in out


def test_what_was_not_read_is_named_with_its_reason(api: ScriptedApi, cli: Cli) -> None:
    api.collection("letters")
    gaps = [
        skipped("locked.pdf", None, "needs_password"), skipped("late.pdf", 40, "budget", whole=False),
        skipped("bad.pdf", 1, "failed"), skipped("new.pdf", 1204, "in_progress"), skipped("odd.pdf", 2, "new_reason"),
        *(skipped(f"{n}.pdf", 10, "not_selected") for n in range(12)),
    ]  # fmt: skip
    api.events = events(answer(coverage={"sentence": "Read 2 pages.", "skipped": gaps}))
    out = cli("ask", "Why?").out.splitlines()
    assert [text for text in out if "not read" in text] == [
        "  not read: locked.pdf: needs a password",
        "  not read: late.pdf, 40 of its pages: over the budget of one full pass",
        "  not read: bad.pdf, 1 page: could not be read",
        "  not read: new.pdf, 1,204 pages: is still being indexed",
        "  not read: odd.pdf, 2 pages: new reason",
        "  not read, as you chose others: 12 documents, 120 pages",
    ]
    api.events = events(answer(coverage={"sentence": "", "skipped": [skipped(f"{n}", 1, "failed") for n in range(25)]}))
    out = cli("ask", "Why?").out
    assert out.count("not read") == 20
    assert "and 5 more: `--json` names them all" in out


# Verdicts


def test_verdicts_come_one_by_one_and_are_then_told_by_group(api: ScriptedApi, cli: Cli) -> None:
    api.collection("letters")
    quotes = [
        citation(ordinal=1, document="a.pdf", quote="May end it."),
        citation(ordinal=2, document="b.pdf", quote="May not."),
        citation(ordinal=3, document="d.pdf", quote="Made up.", verified=False, page=None),
    ]  # fmt: skip
    verdicts = [
        verdict("a.pdf", "yes", 1), verdict("b.pdf", "no", 2), verdict("c.pdf", "silent", proved=False),
        verdict("d.pdf", "yes", 3, proved=False, note="The quote does not stand there."), verdict("e.pdf", "silent"),
    ]  # fmt: skip
    text = "1 of 5 documents says yes.\n\nYes:\n- a.pdf [1]"
    tally = {"yes": 1, "no": 1, "silent": 2, "unproved": 1}
    final = answer(route="full", text=text, citations=quotes, verdicts=verdicts, tally=tally)
    # A quote comes before the verdict that it proves.
    steps = [
        ("citation", quotes[0]), ("verdict", verdicts[0]), ("citation", quotes[1]), ("verdict", verdicts[1]),
        ("verdict", verdicts[2]), ("citation", quotes[2]), ("verdict", verdicts[3]), ("verdict", verdicts[4]),
    ]  # fmt: skip
    api.events = events(final, routed("full", "You ask how many.", by_document=True), *steps, ("delta", {"text": text}))
    out = cli("ask", "How many may end it?").out
    assert out.startswith("Route: full pass, document by document, because you ask how many.\n")
    assert [text.split() for text in out.split("1 of 5 documents says yes.")[0].splitlines()[2:-1]] == [
        ["yes", "a.pdf"], ["no", "b.pdf"], ["silent", "c.pdf"],
        ["yes,", "unproved", "d.pdf:", "The", "quote", "does", "not", "stand", "there."], ["silent", "e.pdf"],
    ]  # fmt: skip
    told = out.split("1 of 5 documents says yes.\n")[1]
    assert "Yes (1 of 5 documents):\n  a.pdf\n [1] “May end it.”\n     ✓ verified: a.pdf, page 4" in told
    assert "No, it says the opposite (1 of 5 documents):\n  b.pdf\n [2] “May not.”\n     ✓ verified: b.pdf" in told
    assert "Silent, nothing about it was found (2 of 5 documents):\n  c.pdf\n  e.pdf\n" in told
    assert (
        "Not proved, do not rely on it (1 of 5 documents):\n  d.pdf (yes): The quote does not stand there.\n"
        " [3] “Made up.”\n     ✗ not found there, do not rely on it: d.pdf"
    ) in told
    assert "Sentences of the documents" not in out
    assert "Read 2 pages." in told


def test_a_count_of_nothing_lists_the_silent_ones_and_is_four_when_the_server_says_so(
    api: ScriptedApi, cli: Cli
) -> None:
    api.collection("letters")
    silent = [verdict("a.pdf", "silent"), verdict("b.pdf", "silent")]
    final = answer(state="not_found", route="full", text="0 of 2 documents say yes.", citations=[], verdicts=silent)
    api.events = events(final, routed("full"), *(("verdict", each) for each in silent))
    outcome = cli("ask", "How many?")
    assert outcome.status == 4
    assert "0 of 2 documents say yes." in outcome.out
    assert "Silent, nothing about it was found (2 of 2 documents):\n  a.pdf\n  b.pdf\n" in outcome.out
    assert "Yes (" not in outcome.out


# Again


def test_a_stored_answer_is_asked_again_and_what_changed_is_told(api: ScriptedApi, cli: Cli) -> None:
    api.answers[ANSWER] = answer()
    changes = [
        {"what": "document lease.pdf: new version 2", "before": "sha256 ab12", "after": "sha256 cd34"},
        {"what": "document x.pdf was added", "before": None, "after": "version 1"},
        {"what": "the prompts were made in another order", "before": None, "after": None},
    ]
    final = answer(id=str(uuid.uuid4()), again_of=ANSWER, changes=changes)
    api.events = events(final, ("citation", citation()))
    out = cli("ask", "--again", ANSWER).out
    assert out.startswith("Question: What is the cap?\n")
    assert out.index("“The cap is EUR 5.”") < out.index("Changed since")
    assert out.splitlines()[-4:] == [
        f"Changed since the answer before ({ANSWER}):",
        "  - document lease.pdf: new version 2: sha256 ab12 -> sha256 cd34",
        "  - document x.pdf was added: version 1",
        "  - the prompts were made in another order",
    ]
    assert f"POST /api/v1/answers/{ANSWER}/again" in api.requests
    assert cli("ask", "--again", ANSWER, "--json").json == final


def test_nothing_changed_but_the_time(api: ScriptedApi, cli: Cli) -> None:
    api.answers[ANSWER] = answer()
    api.events = events(answer(again_of=ANSWER, changes=[]), ("citation", citation()))
    outcome = cli("ask", "--again", ANSWER)
    assert (outcome.status, outcome.out.splitlines()[-1]) == (0, "Nothing changed but the time.")
    api.events = events(answer(state="not_found", text="Not found.", citations=[], again_of=ANSWER, changes=[]))
    assert cli("ask", "--again", ANSWER).status == 4


@pytest.mark.parametrize(
    "others",
    [("What?",), ("-c", "letters"), ("--route", "full"), ("--document", "a.pdf")],
    ids=["question", "collection", "route", "document"],
)
def test_again_repeats_and_asks_nothing_else(api: ScriptedApi, cli: Cli, others: tuple[str, ...]) -> None:
    outcome = cli("ask", *others, "--again", ANSWER)
    assert outcome.status == 2
    assert "--again repeats the stored question" in outcome.err
    assert not api.requests


def test_again_wants_an_answer_that_is_there(api: ScriptedApi, cli: Cli) -> None:
    assert "fullread answers" in cli("ask", "--again", "the last one").err
    assert cli("ask", "--again", ANSWER, "--json").json["code"] == "not_found"
    assert cli("ask", "--again", ANSWER).status == 1
    assert "Give a question" in cli("ask").err
