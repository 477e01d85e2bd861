"""Run records: equal for equal runs, silent when nothing differs, and no single difference goes unnoticed."""

import copy
import dataclasses
import json
import random
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.answering.changes import NAMED_PROMPTS, NAMED_UNREAD, Change, changes
from app.answering.runs import (
    Counts,
    DocumentRecord,
    ModelRecord,
    Outcome,
    PromptRecord,
    Quoted,
    RunRecord,
    Said,
    SnapshotRecord,
    TallyCounts,
    Unread,
    as_json,
    outcome_of,
)

Json = dict[str, Any]
LEASE, NOTICE = UUID(int=1), UUID(int=2)


def record(**facts: Any) -> RunRecord:
    made = RunRecord(
        fullread="0.2.0",
        question_sha256="a1" * 32,
        asked_route="auto",
        route="full",
        by_document=False,
        selection=frozenset(),
        model=ModelRecord("smollm2-135m-instruct", "d1" * 32, 8192, "extractive"),
        embeddings_model="multilingual-e5-small-int8",
        settings={"section_tokens": 1500, "dense_weight": 0.7, "temperature": 0.0, "seed": 0},
        snapshot=SnapshotRecord("c1" * 32, 2, 2800),
        prompts=(
            PromptRecord("section 1 of 2", "b1" * 32, 1402),
            PromptRecord("section 2 of 2", "b2" * 32, 1398),
            PromptRecord("merge", "b3" * 32, 200),
        ),
        documents=(
            DocumentRecord(LEASE, "lease.pdf", UUID(int=11), 1, "e1" * 32, 12),
            DocumentRecord(NOTICE, "notice.pdf", UUID(int=12), 1, "e2" * 32, 2),
        ),
    )
    return dataclasses.replace(made, **facts)


def outcome(**facts: Any) -> Outcome:
    made = Outcome(
        state="succeeded",
        text="“The cap is EUR 5.” [1]",
        citations=(Quoted("lease.pdf", 4, "The cap is EUR 5.", verified=True),),
        coverage=Counts(documents_total=3, documents_read=2, pages_total=17, pages_read=14, sections=2),
        unread=(Unread("scan.pdf", 3, "needs_ocr"),),
        verdicts=(
            Said(str(LEASE), "lease.pdf", "yes", proved=True),
            Said(str(NOTICE), "notice.pdf", "silent", proved=False),
        ),
        tally=TallyCounts(yes=1, silent=1),
    )
    return dataclasses.replace(made, **facts)


def sentences(before: RunRecord, after: RunRecord) -> list[str]:
    return [change.sentence for change in changes(as_json(before), as_json(after))]


def effects(before: Outcome, after: Outcome) -> list[str]:
    same = as_json(record())
    return [change.sentence for change in changes(same, same, outcomes=(before, after))]


def document(before: RunRecord, number: int, **facts: Any) -> RunRecord:
    rows = list(before.documents)
    rows[number] = dataclasses.replace(rows[number], **facts)
    return dataclasses.replace(before, documents=tuple(rows))


# The record


def test_equal_runs_give_equal_json_that_survives_the_database() -> None:
    ids = [UUID(int=n) for n in range(1, 9)]
    one = as_json(record(selection=frozenset(ids), settings={"b": 1, "a": None}))
    two = as_json(record(selection=frozenset(reversed(ids)), settings={"a": None, "b": 1}))
    assert json.dumps(one) == json.dumps(two)
    assert json.loads(json.dumps(one)) == one
    assert one["format"] == 1
    assert one["documents"][0] == {
        "id": str(LEASE), "name": "lease.pdf", "version_id": str(UUID(int=11)), "version_number": 1,
        "sha256": "e1" * 32, "pages": 12,
    }  # fmt: skip
    assert one["embeddings"] == {"model": "multilingual-e5-small-int8"}
    assert as_json(record(snapshot=None))["snapshot"] is None


# Causes, in the words of a person


def test_a_new_version_is_named_with_its_bytes() -> None:
    after = document(record(), 0, version_id=UUID(int=21), version_number=2, sha256="f1" * 32, pages=14)
    assert sentences(record(), after) == [
        "document lease.pdf: new version 2: sha256 e1e1e1e1e1e1 -> sha256 f1f1f1f1f1f1",
        "document lease.pdf: pages: 12 -> 14",
    ]


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"name": "lease-2026.pdf"}, "document was renamed: lease.pdf -> lease-2026.pdf"),
        (
            {"sha256": "e1" * 31 + "ff"},
            f"document lease.pdf: same version, other bytes: sha256 {'e1' * 32} -> sha256 {'e1' * 31}ff",
        ),
        ({"version_number": 2}, "document lease.pdf: another version with the same bytes: 1 -> 2"),
        ({"id": UUID(int=9)}, "document lease.pdf was deleted and added again, with the same bytes"),
        (
            {"id": UUID(int=9), "sha256": "f1" * 32},
            f"document lease.pdf was deleted and added again, with other bytes: sha256 {'e1' * 6} -> sha256 {'f1' * 6}",
        ),
    ],
)  # fmt: skip
def test_what_became_of_a_document(facts: Json, sentence: str) -> None:
    assert sentences(record(), document(record(), 0, **facts)) == [sentence]


def test_documents_are_added_and_removed() -> None:
    both = record()
    one = dataclasses.replace(both, documents=both.documents[:1])
    assert sentences(one, both) == ["document notice.pdf was added: version 1, sha256 e2e2e2e2e2e2"]
    assert sentences(both, one) == ["document notice.pdf was removed: version 1, sha256 e2e2e2e2e2e2"]


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"settings": {**record().settings, "section_tokens": 1800}}, "setting section_tokens: 1,500 -> 1,800"),
        ({"settings": {**record().settings, "seed": False}}, "setting seed: 0 -> no"),
        ({"settings": {**record().settings, "new": True}}, "setting new: not recorded -> yes"),
        ({"model": dataclasses.replace(record().model, id="qwen3-4b")}, "model: smollm2-135m-instruct -> qwen3-4b"),
        ({"model": dataclasses.replace(record().model, digest=None)}, "digest of the model: d1d1d1d1d1d1 -> unknown"),
        ({"embeddings_model": "e5-large"}, "embedding model: multilingual-e5-small-int8 -> e5-large"),
        ({"fullread": "0.3.0"}, "version of Fullread: 0.2.0 -> 0.3.0"),
        ({"route": "retrieval"}, "route taken: full -> retrieval"),
        ({"by_document": True}, "asked document by document: no -> yes"),
        ({"selection": frozenset([LEASE])}, "selection: the whole collection -> 1 of its documents"),
        ({"snapshot": None}, "corpus text of a full pass: 2,800 tokens in 2 sections -> none"),
    ],
)
def test_what_else_may_have_changed(facts: Json, sentence: str) -> None:
    assert sentences(record(), record(**facts)) == [sentence]


def test_a_selection_names_its_documents() -> None:
    before, after = record(selection=frozenset([LEASE])), record(selection=frozenset([NOTICE]))
    assert sentences(before, after) == [
        "selection: no longer in it: lease.pdf",
        "selection: now in it: notice.pdf",
    ]


# Prompts


def prompts(*tokens: int, start: int = 0) -> tuple[PromptRecord, ...]:
    return tuple(
        PromptRecord(f"section {n} of {len(tokens)}", f"{start + count:064x}", count)
        for n, count in enumerate(tokens, start=1)
    )


def test_a_changed_prompt_is_named_with_its_tokens() -> None:
    assert sentences(record(prompts=prompts(1402, 7)), record(prompts=prompts(1433, 7))) == [
        "prompt 'section 1 of 2' changed: 1,402 tokens -> 1,433 tokens"
    ]
    assert sentences(record(prompts=prompts(7)), record(prompts=prompts(7, start=1))) == [
        f"prompt 'section 1 of 1' changed, with as many tokens: sha256 {7:064x} -> sha256 {8:064x}"
    ]


def test_the_prompts_behind_an_early_change_are_counted() -> None:
    told = sentences(record(prompts=prompts(*range(1, 301))), record(prompts=prompts(*range(1001, 1301))))
    assert len(told) == NAMED_PROMPTS + 1
    assert told[0] == "prompt 'section 1 of 300' changed: 1 tokens -> 1,001 tokens"
    assert told[-1] == "more prompts that changed: 297"


def test_one_section_more_names_it_and_not_the_others() -> None:
    assert sentences(record(prompts=prompts(5, 6)), record(prompts=prompts(5, 6, 7))) == [
        "prompt 'section 3 of 3' is new",
        "2 prompts named anew, the first one: section 1 of 2 -> section 1 of 3",
    ]
    assert sentences(record(prompts=prompts(5, 6, 7)), record(prompts=prompts(5, 6)))[0] == (
        "prompt 'section 3 of 3' is no longer made"
    )


def test_the_order_of_prompts_matters_and_that_of_documents_does_not() -> None:
    made = record()
    assert sentences(made, dataclasses.replace(made, prompts=made.prompts[::-1])) == [
        "the prompts were made in another order"
    ]
    assert sentences(made, dataclasses.replace(made, documents=made.documents[::-1])) == []


def test_prompts_of_one_purpose_are_told_apart() -> None:
    twins = (PromptRecord("verdict", "1" * 64, 5), PromptRecord("verdict", "2" * 64, 6))
    assert sentences(record(prompts=twins), record(prompts=twins)) == []
    assert len(sentences(record(prompts=twins), record(prompts=twins[::-1]))) == 2


# Older records


def test_an_answer_without_a_record_is_compared_by_its_outcome() -> None:
    told = changes({}, as_json(record()), outcomes=(outcome(), outcome(state="not_found")))
    assert [change.sentence for change in told] == [
        "the earlier answer has no run record, so only the outcomes are compared",
        "state: succeeded -> not_found",
    ]
    assert changes({}, {}, outcomes=(outcome(), outcome())) == ()


def test_what_an_older_format_lacks_is_named_once_and_not_reported_as_added() -> None:
    older = {key: value for key, value in as_json(record()).items() if key not in {"documents", "by_document"}}
    older["model"] = {"id": "smollm2-135m-instruct"}
    told = [change.sentence for change in changes(older, as_json(record()))]
    assert told == [
        f"digest of the model: not recorded -> {'d1' * 6}",
        "window of the model, in tokens: not recorded -> 8,192",
        "form of answers: not recorded -> extractive",
        "not compared, because the earlier answer's record does not hold it: by_document, documents",
    ]


# Effects


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"state": "not_found"}, ["state: succeeded -> not_found"]),
        ({"coverage": dataclasses.replace(outcome().coverage, pages_read=16)}, ["coverage, pages read: 14 -> 16"]),
        ({"unread": ()}, ["not read in scan.pdf (needs ocr): 3 pages -> nothing"]),
        (
            {"unread": (Unread("scan.pdf", None, "needs_ocr"),)},
            ["not read in scan.pdf (needs ocr): 3 pages -> an unknown number of pages"],
        ),
        (
            {"tally": TallyCounts(yes=2)},
            ["documents that say yes: 1 -> 2", "documents that are silent: 1 -> 0"],
        ),
        ({"tally": None}, [f"{label} -> not counted" for label in (
            "documents that say yes: 1", "documents that say the opposite: 0", "documents that are silent: 1",
            "documents without a proved verdict: 0")]),
        (
            {"verdicts": (Said(str(LEASE), "lease.pdf", "yes", proved=False), outcome().verdicts[1])},
            ["verdict on lease.pdf: yes -> yes, not proved"],
        ),
        ({"verdicts": outcome().verdicts[:1]}, ["verdict on notice.pdf: silent -> none"]),
        (
            {"citations": (Quoted("lease.pdf", 5, "The cap is EUR 5.", verified=True),)},
            ["quote “The cap is EUR 5.” in lease.pdf: page 4, verified -> page 5, verified"],
        ),
        (
            {"citations": (Quoted("lease.pdf", 4, "The cap is EUR 6.", verified=False),)},
            [
                "quote no longer given: “The cap is EUR 5.” (lease.pdf, page 4, verified)",
                "new quote: “The cap is EUR 6.” (lease.pdf, page 4, not verified)",
            ],
        ),
        (
            {"text": "“The cap is EUR 6.” [1]"},
            ["wording of the answer: “The cap is EUR 5.” [1] -> “The cap is EUR 6.” [1]"],
        ),
        ({"text": ""}, ["wording of the answer: “The cap is EUR 5.” [1] -> nothing"]),
    ],
)  # fmt: skip
def test_effects_are_told(facts: Json, told: list[str]) -> None:
    assert effects(outcome(), outcome(**facts)) == told


def test_long_texts_are_shown_from_their_difference_on() -> None:
    (told,) = effects(outcome(text="a " * 500 + "five" + " b" * 500), outcome(text="a " * 500 + "six" + " b" * 500))
    assert "five b b" in told
    assert "six b b" in told
    assert len(told) < 500


def test_the_order_of_quotes_has_no_meaning_and_twins_are_counted() -> None:
    quotes = (
        Quoted("a", 1, "x", verified=True),
        Quoted("a", 1, "x", verified=True),
        Quoted("b", 2, "y", verified=True),
    )
    assert effects(outcome(citations=quotes), outcome(citations=quotes[::-1])) == []
    assert effects(outcome(citations=quotes), outcome(citations=quotes[1:])) == [
        "quote no longer given: “x” (a, page 1, verified)"
    ]


def test_many_unread_documents_are_counted() -> None:
    unread = tuple(Unread(f"{n:03}.pdf", 1, "not_selected") for n in range(100))
    told = effects(outcome(), outcome(unread=(*outcome().unread, *unread)))
    assert len(told) == NAMED_UNREAD + 1
    assert told[-1] == f"more changes in what was not read: {100 - NAMED_UNREAD}"


def test_causes_come_before_prompts_and_prompts_before_effects() -> None:
    after = document(
        record(
            settings={**record().settings, "section_tokens": 1800},
            model=dataclasses.replace(record().model, id="qwen3-4b"),
            fullread="0.3.0",
            selection=frozenset([LEASE]),
            embeddings_model="e5-large",
            prompts=prompts(1),
        ),
        0,
        sha256="f1" * 32,
    )
    worse = outcome(state="not_found", tally=None, citations=(), coverage=Counts(), text="")
    told = [c.sentence for c in changes(as_json(record()), as_json(after), outcomes=(outcome(), worse))]
    marks = ("document ", "selection", "model: ", "embedding ", "setting ", "version ", "prompt '", "state", "coverage",
             "documents that", "quote ", "wording")  # fmt: skip
    places = [next(n for n, sentence in enumerate(told) if sentence.startswith(mark)) for mark in marks]
    assert places == sorted(places)


def test_the_outcome_is_the_same_from_the_answer_as_made_and_as_stored() -> None:
    answer = {
        "id": "a", "state": "succeeded", "text": "T", "seconds": 1.5, "created_at": "2026-01-15T09:00:00+00:00",
        "citations": [{"ordinal": 1, "document": "lease.pdf", "page": 4, "quote": "Q", "verified": True, "boxes": []}],
        "coverage": {"documents_total": 2, "pages_read": 9, "sections": 3, "sentence": "Read.", "skipped": [
            {"document": "scan.pdf", "document_id": "s", "pages": None, "reason": "failed", "whole_document": True}]},
        "verdicts": [{"document": "lease.pdf", "document_id": "l", "verdict": "yes", "proved": True, "ordinals": [1]}],
        "tally": {"yes": 1, "no": 0, "silent": 0, "unproved": 0},
    }  # fmt: skip
    found = outcome_of(answer)
    assert found == Outcome(
        state="succeeded",
        text="T",
        citations=(Quoted("lease.pdf", 4, "Q", verified=True),),
        coverage=Counts(documents_total=2, pages_read=9, sections=3),
        unread=(Unread("scan.pdf", None, "failed"),),
        verdicts=(Said("l", "lease.pdf", "yes", proved=True),),
        tally=TallyCounts(yes=1),
    )
    again = {**answer, "id": "b", "seconds": 0.3, "created_at": "2026-02-01T10:00:00+00:00"}
    assert outcome_of(again) == found
    assert outcome_of({}) == Outcome(state="", text="")
    assert outcome_of({"state": "failed", "coverage": {}, "tally": None, "verdicts": None}).tally is None


# Properties


WORDS = st.text("abcdef .", min_size=1, max_size=8)
HASHES = st.integers(0, 2**256 - 1).map("{:064x}".format)
SETTINGS = st.none() | st.booleans() | st.integers(2, 9) | st.sampled_from([0.0, 0.5])
VERSIONS = st.none() | st.uuids()
RECORDS = st.builds(
    RunRecord,
    fullread=WORDS,
    question_sha256=HASHES,
    asked_route=st.sampled_from(["auto", "retrieval", "full"]),
    route=st.sampled_from(["retrieval", "full"]),
    by_document=st.booleans(),
    selection=st.frozensets(st.uuids(), max_size=3),
    model=st.builds(ModelRecord, WORDS, st.none() | HASHES, st.integers(1, 10**6), WORDS),
    embeddings_model=WORDS,
    settings=st.dictionaries(WORDS, SETTINGS, max_size=4),
    snapshot=st.none() | st.builds(SnapshotRecord, HASHES, st.integers(1, 9), st.integers(1, 10**6)),
    prompts=st.lists(st.builds(PromptRecord, WORDS, HASHES, st.integers(1, 9999)), max_size=4).map(tuple),
    documents=st.lists(
        st.builds(DocumentRecord, st.uuids(), WORDS, VERSIONS, st.integers(1, 9), HASHES, st.integers(0, 99)),
        max_size=3,
        unique_by=lambda row: row.id,
    ).map(tuple),
)  # fmt: skip


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from leaves(inner, (*path, number))
    else:
        yield path


def other(value: Any) -> Any:
    """Another value of the same kind."""
    if value is None:
        return 7
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return value[:-1] + ("x" if value[-1:] != "x" else "y")


def with_leaf(made: Json, path: tuple[Any, ...], change: Any) -> Json:
    copied = copy.deepcopy(made)
    target: Any = copied
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = change(target[path[-1]])
    return copied


@given(RECORDS)
def test_a_record_does_not_differ_from_itself(made: RunRecord) -> None:
    stored = json.loads(json.dumps(as_json(made)))
    assert changes(as_json(made), stored, outcomes=(outcome(), outcome())) == ()


@settings(max_examples=30)  # each example is changed in fifty places
@given(RECORDS, st.randoms(use_true_random=False))
def test_every_single_difference_is_noticed_in_both_directions(made: RunRecord, chance: random.Random) -> None:
    stored = as_json(made)
    for path in leaves(stored):
        changed = with_leaf(stored, path, other)
        for told in (changes(stored, changed), changes(changed, stored)):
            assert told, path
            assert all(change.before != change.after or change.before is None for change in told), (path, told)
    for key in stored:
        fewer_keys = {k: v for k, v in stored.items() if k != key}
        assert changes(fewer_keys, stored), key
        assert changes(stored, fewer_keys), key
    assert changes(stored | {"unheard": 1}, stored | {"unheard": 2})
    for name in ("prompts", "documents"):
        if stored[name]:
            fewer = list(stored[name])
            del fewer[chance.randrange(len(fewer))]
            assert changes(stored, {**stored, name: fewer})
            assert changes({**stored, name: fewer}, stored)


@given(RECORDS, st.randoms(use_true_random=False))
def test_only_the_order_of_prompts_has_a_meaning(made: RunRecord, chance: random.Random) -> None:
    stored = as_json(made)
    documents, selection, shuffled = (list(stored[key]) for key in ("documents", "selection", "prompts"))
    for rows in (documents, selection, shuffled):
        chance.shuffle(rows)
    assert changes(stored, {**stored, "documents": documents, "selection": selection}) == ()
    assert bool(changes(stored, {**stored, "prompts": shuffled})) == (shuffled != stored["prompts"])


@given(RECORDS, RECORDS)
def test_any_two_records_can_be_compared(one: RunRecord, two: RunRecord) -> None:
    stored = as_json(one), as_json(two)
    told = changes(*stored)
    for each in stored:
        each["documents"].sort(key=lambda row: row["id"])
    assert bool(told) == (stored[0] != stored[1])
    assert all(isinstance(change, Change) and change.sentence for change in told)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted(as_json(record()))), JSON))
def test_a_record_of_a_stranger_shape_breaks_nothing(strange: Json) -> None:
    changes(strange, as_json(record()))
    changes(as_json(record()), strange)
    assert changes(strange, strange) == ()
