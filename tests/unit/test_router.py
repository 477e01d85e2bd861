"""The first routing rule: the caller's choice, what fits, what the question asks; every decision explained."""

import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.retrieval.router import CorpusSize, Decision, Limits, Route, decide
from app.retrieval.tasks import AskedTask, Task, read

LIMITS = Limits(
    context_tokens=1_400,
    window_tokens=8_192,
    section_tokens=1_500,
    full_pass_tokens=100_000,
    prefill_tokens_per_s=200.0,
)
SMALL = CorpusSize(documents=2, pages=3, tokens=1_400)
MIDDLE = CorpusSize(documents=6, pages=41, tokens=13_200)
HUGE = CorpusSize(documents=900, pages=9_000, tokens=3_000_000)
LOCAL = read("What is the notice period of the lease?")
COUNT = read("How many contracts have an exclusivity clause?")
COMPARE = read("Compare the notice periods.")
NOTHING_ASKED = read("How many documents are there?")


@pytest.mark.parametrize(
    ("asked", "task", "corpus", "route", "by_document"),
    [
        ("auto", LOCAL, SMALL, "full", False),
        ("auto", COUNT, SMALL, "full", True),
        ("auto", LOCAL, CorpusSize(2, 3, 1_401), "retrieval", False),
        ("auto", COUNT, MIDDLE, "full", True),
        ("auto", COMPARE, MIDDLE, "full", False),
        ("auto", NOTHING_ASKED, MIDDLE, "full", False),
        ("auto", COUNT, CorpusSize(60, 300, 100_000), "full", True),
        ("auto", COUNT, CorpusSize(60, 300, 100_001), "retrieval", False),
        ("auto", COUNT, CorpusSize(0, 0, 0), "retrieval", False),
        ("auto", COUNT, CorpusSize(3, 9, 0), "retrieval", False),
        ("full", LOCAL, HUGE, "full", False),
        ("full", COUNT, HUGE, "full", True),
        ("full", LOCAL, CorpusSize(0, 0, 0), "full", False),
        ("retrieval", COUNT, SMALL, "retrieval", False),
    ],
)
def test_route(asked: Route, task: AskedTask, corpus: CorpusSize, route: str, by_document: bool) -> None:
    decision = decide(asked, task, corpus, LIMITS)
    assert (decision.route, decision.by_document) == (route, by_document)


@pytest.mark.parametrize("task", [task for task in Task if task is not Task.LOCAL])
def test_every_task_over_several_documents_reads_them_all(task: Task) -> None:
    decision = decide("auto", AskedTask(task, about="cap", cue="the cue"), MIDDLE, LIMITS)
    assert decision.route == "full"
    assert '"the cue"' in decision.reasons[0]


def test_reasons_of_a_count() -> None:
    why, costs, override = decide("auto", COUNT, MIDDLE, LIMITS).reasons
    assert why == (
        '"How many contracts" asks for a number of documents, so all 41 pages of 6 documents are read.'
        " Each document is asked for itself, and the answers are counted, not estimated."
    )
    assert costs == (
        "A full pass reads about 13,200 tokens in 9 sections (about 66 s) the first time; retrieval reads at most 1,400"
        " tokens (about 7 s)."
    )
    assert override == "Ask with route 'retrieval' to search only the best passages: sooner, but it may miss some."


def test_a_corpus_over_the_budget_says_how_to_read_its_first_part() -> None:
    reasons = decide("auto", COUNT, HUGE, LIMITS).reasons
    assert "3,000,000 tokens, more than the 100,000" in reasons[0]
    assert "route 'full'" in reasons[-1]
    assert "first 100,000 tokens" in reasons[-1]
    asked_anyhow = decide("full", COUNT, HUGE, LIMITS).reasons
    assert any("first 100,000 tokens" in reason and "not read" in reason for reason in asked_anyhow)
    assert not any("first 100,000" in reason for reason in decide("full", COUNT, MIDDLE, LIMITS).reasons)


def test_a_count_by_retrieval_says_that_it_may_miss_some() -> None:
    assert "not counted" in " ".join(decide("retrieval", COUNT, MIDDLE, LIMITS).reasons)
    assert "not counted" not in " ".join(decide("retrieval", LOCAL, MIDDLE, LIMITS).reasons)


def test_each_document_is_at_least_one_section_when_each_is_asked() -> None:
    corpus = CorpusSize(documents=30, pages=30, tokens=6_000)
    assert " in 30 sections" in " ".join(decide("full", COUNT, corpus, LIMITS).reasons)
    assert " in 4 sections" in " ".join(decide("full", LOCAL, corpus, LIMITS).reasons)


@pytest.mark.parametrize(
    ("tokens", "shown"), [(200, "(about 1 s)"), (23_900, "(about 120 s)"), (60_000, "(about 5 min)")]
)
def test_time_is_shown_in_the_unit_that_reads_best(tokens: int, shown: str) -> None:
    assert shown in " ".join(decide("full", LOCAL, CorpusSize(1, 1, tokens), LIMITS).reasons)


def test_a_very_long_pass_is_shown_in_hours() -> None:
    limits = Limits(1_400, 8_192, 1_500, 3_000_000, 200.0)
    assert "(about 5 h)" in " ".join(decide("full", LOCAL, HUGE, limits).reasons)


TASKS = st.builds(AskedTask, task=st.sampled_from(Task), about=st.sampled_from(["", "cap"]), cue=st.just("cue"))
SIZES = st.builds(
    CorpusSize, documents=st.integers(0, 500), pages=st.integers(0, 5_000), tokens=st.integers(0, 3_000_000)
)
NUMBER = st.integers(0, 200_000)
ANY_LIMITS = st.builds(
    Limits,
    context_tokens=NUMBER,
    window_tokens=NUMBER,
    section_tokens=NUMBER,
    full_pass_tokens=NUMBER,
    prefill_tokens_per_s=st.one_of(st.just(0.0), st.floats(0.001, 1e6)),
)


@given(st.sampled_from(["retrieval", "full"]), TASKS, SIZES, ANY_LIMITS)
def test_the_callers_choice_is_always_obeyed(asked: Route, task: AskedTask, corpus: CorpusSize, limits: Limits) -> None:
    assert decide(asked, task, corpus, limits).route == asked


@given(TASKS, SIZES, ANY_LIMITS)
def test_auto_never_reads_more_than_a_full_pass_may(task: AskedTask, corpus: CorpusSize, limits: Limits) -> None:
    if decide("auto", task, corpus, limits).route == "full":
        assert 0 < corpus.tokens <= limits.full_pass_tokens


@given(st.sampled_from(get_args(Route)), TASKS, SIZES, ANY_LIMITS)
def test_reasons_name_the_cost_of_both_routes_and_what_would_change_it(
    asked: Route, task: AskedTask, corpus: CorpusSize, limits: Limits
) -> None:
    decision: Decision = decide(asked, task, corpus, limits)
    text = " ".join(decision.reasons)
    read_whole, passages = min(corpus.tokens, limits.full_pass_tokens), min(corpus.tokens, limits.context_tokens)
    assert f"reads about {read_whole:,} token" in text
    assert f"reads at most {passages:,} token" in text
    assert re.search(r"in [\d,]+ sections?\b", text)
    assert re.match(r"Ask with route|Upload", decision.reasons[-1])
    assert all(reason.endswith(".") for reason in decision.reasons)
    assert decision.by_document is False or decision.route == "full"
