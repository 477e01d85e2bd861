"""Answers that take long, are queued or were stored, and the jobs behind them; what Ctrl-C leaves behind."""

import os
import pty
import select
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from app.cli import ask
from tests.support.answer_events import (
    ANSWER,
    JOB,
    Json,
    answer,
    events,
    job,
    queued,
    reading,
    routed,
    verdict,
)
from tests.support.scripted_api import CUT, HOLD, TOKEN, ScriptedApi
from tests.unit.test_cli import ROOT, Cli, api, bare, cli, place

__all__ = ["api", "bare", "cli", "place"]


# While it takes long


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (reading(3, 11, "lease.pdf")[1], "Reading section 3 of 11 (lease.pdf)"),
        ({"phase": "reading", "coverage": "Read."}, "Reading"),
        ({"phase": "merging", "findings": 3}, "Putting the sections' findings together"),
        (
            queued(2)[1],
            "The model server is taken: place 2 in the queue. Ctrl-C stops the watching only, the analysis goes on",
        ),
        ({"phase": "some_new_step"}, "Some new step"),
    ],
)  # fmt: skip
def test_steps_in_words(data: Json, words: str) -> None:
    assert ask.step_words(data) == words


def test_a_pipe_gets_a_line_now_and_then_and_each_place_in_the_queue(
    api: ScriptedApi, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.collection("letters")
    api.events = events(answer(), queued(2), queued(1), reading(1, 2, "a.pdf"), reading(2, 2, "b.pdf"))
    err = cli("ask", "Why?").err
    assert err.count("place 2 in the queue") == err.count("place 1 in the queue") == 1
    assert "Reading section" not in err
    monkeypatch.setattr(ask, "_LINE_EVERY_S", 0.0)
    assert "Reading section 2 of 2 (b.pdf) ..." in cli("ask", "Why?").err
    assert cli("ask", "Why?", "--json").err == ""


@contextmanager
def started(api: ScriptedApi, *arguments: str, **streams: Any) -> "Iterator[subprocess.Popen[str]]":
    """A command in a process of its own, which does not outlive the test."""
    command = [sys.executable, "-m", "app.cli", *arguments]
    environment = {
        **os.environ, "FULLREAD_URL": api.url, "FULLREAD_API_KEY": TOKEN, "PYTHONPATH": str(ROOT), "COLUMNS": "200",
        "TERM": "xterm",
    }  # fmt: skip
    with subprocess.Popen(command, env=environment, text=True, **streams) as child:
        try:
            yield child
        finally:
            child.kill()


def seen(terminal: int, mark: str) -> str:
    """What a terminal shows until `mark`."""
    said, deadline = "", time.monotonic() + 60
    while mark not in said:
        assert select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0], said
        said += os.read(terminal, 4096).decode(errors="replace")
    return said


def test_ctrl_c_leaves_a_queued_analysis_and_says_how_to_follow_it(api: ScriptedApi) -> None:
    api.collection("letters")
    api.events = [*events(answer(), queued(2))[:-1], HOLD]
    with started(api, "ask", "How many?", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stderr is not None
        assert "place 2 in the queue" in child.stderr.readline()
        child.send_signal(signal.SIGINT)
        said = child.communicate(timeout=30)[1]
        assert child.returncode == 130
    assert said == (
        f"Stopped watching. The analysis goes on as job {JOB}: `fullread jobs show {JOB}` says how far it is,"
        f" `fullread answers show {ANSWER}` shows its answer when it is done, `fullread jobs cancel {JOB}` stops it.\n"
    )


def test_a_terminal_sees_the_sections_and_ctrl_c_stops_what_is_not_queued(api: ScriptedApi) -> None:
    api.collection("letters")
    api.events = [*events(answer(), routed("full", "You asked for it."), reading(3, 11, "[bold]lease.pdf"))[:-1], HOLD]
    ours, theirs = pty.openpty()
    with started(api, "ask", "Why?", stdin=theirs, stdout=theirs, stderr=theirs) as child:
        os.close(theirs)
        said = seen(ours, "Reading section 3 of 11 ([bold]lease.pdf) ...")
        assert "Route: full pass, because you asked for it." in said
        child.send_signal(signal.SIGINT)
        said += seen(ours, "Stopped. The server stops, too")
        assert child.wait(timeout=30) == 130
    os.close(ours)
    assert "goes on as job" not in said


def test_a_cut_line_says_that_a_queued_analysis_goes_on(api: ScriptedApi, cli: Cli) -> None:
    api.collection("letters")
    api.events = events(answer(), queued(1))[:-1]
    ended = cli("ask", "Why?")
    api.events = [*api.events, CUT]
    cut = cli("ask", "Why?")
    for outcome in (ended, cut):
        assert outcome.status == 1
        assert f"goes on as job {JOB}" in outcome.err
    assert "Error: The connection" in cut.err
    api.events = [*events(answer())[:-1], CUT]
    assert "goes on" not in cli("ask", "Why?").err


# Stored answers and jobs


def test_answers_are_listed_and_shown(api: ScriptedApi, cli: Cli) -> None:
    letters = api.collection("letters")["id"]
    for number in range(30):
        made = answer(id=str(uuid.UUID(int=number)), collection_id=letters if number else "other")
        api.answers[made["id"]] = made
    assert len(cli("answers", "--json").json["answers"]) == 20
    assert len(cli("answers", "-c", "letters", "--limit", "100", "--json").json["answers"]) == 29
    assert "What is the cap?" in cli("answers").out
    shown = cli("answers", "show", made["id"])
    assert shown.out.startswith("Question: What is the cap?\nAsked:    2026-01-15 09:00 UTC\nRoute: retrieval.\n")
    assert "✓ verified: contracts/msa.pdf, page 4 (printed 3)" in shown.out
    assert cli("answers", "show", made["id"], "--json").json == made
    assert cli("answers", "show", "last").status == 2


def test_a_stored_answer_looks_as_it_did(api: ScriptedApi, cli: Cli) -> None:
    generative = answer(form="generative", text="The cap is EUR 5 [1].", route="full", route_reasons=["You asked."])
    api.answers[ANSWER] = generative
    out = cli("answers", "show", ANSWER).out
    assert "\nThe cap is EUR 5 [1].\n\nSources:\n\n [1] “The cap is EUR 5.”" in out
    assert "Note: You asked." in out
    counted = answer(
        route="full", text="1 of 1.\n\nYes:", verdicts=[verdict("a.pdf", "yes", 1)], run={"by_document": True}
    )
    api.answers[ANSWER] = counted
    out = cli("answers", "show", ANSWER).out
    assert "Route: full pass, document by document." in out
    assert "Yes (1 of 1 document):\n  a.pdf\n [1] “The cap is EUR 5.”" in out
    api.answers[ANSWER] = answer(state="queued", job_id=JOB, text="", citations=[], message=None)
    assert f"State:    queued (job {JOB})." in cli("answers", "show", ANSWER).out
    api.answers[ANSWER] = answer(
        state="failed", text="", citations=[], code="x", message="The engine counted otherwise."
    )
    assert "State:    failed: The engine counted otherwise." in cli("answers", "show", ANSWER).out


def test_jobs_are_listed_shown_and_cancelled(api: ScriptedApi, cli: Cli) -> None:
    assert cli("jobs").out == "No such jobs.\n"
    api.jobs[JOB] = job()
    api.jobs["other"] = job(id="other", state="failed", code="engine_down", message="It is gone.", progress={})
    assert [j["id"] for j in cli("jobs", "--state", "queued", "--json").json["jobs"]] == [JOB]
    assert "section 3, sections 11" in cli("jobs").out
    assert "It is gone. (engine_down)" in cli("jobs").out
    shown = cli("jobs", "show", JOB).out
    assert f"about     {ANSWER}" in shown
    assert "2026-01-15 09:00  claimed: fence 1" in shown
    assert [e["event"] for e in cli("jobs", "show", JOB, "--json").json["events"]] == ["queued", "claimed"]
    assert cli("jobs", "cancel", JOB).out == "The job is cancelled.\n"
    assert api.jobs[JOB]["state"] == "cancelled"
    api.jobs[JOB]["state"] = "running"
    assert cli("jobs", "cancel", JOB).out == "The job is asked to stop; it is running.\n"
    assert cli("jobs", "cancel", "absent", "--json").json["code"] == "not_found"
