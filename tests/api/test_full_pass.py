"""Full passes by the shipped app over the real stack, with a scripted engine: sections, merge, counts, proof, queue."""

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy import text

from app.core.db import Database
from app.engine import admission, catalog
from app.main import create_app
from tests.support import proof
from tests.support.proof import Door
from tests.support.scripted_engine import Messages, ScriptedEngine
from tests.support.served import served
from tests.support.stack import Stack, upload, wait_for_end, wait_for_job

FIRST = "The password of the first vault is ZEBRA-4711."
LAST = "The password of the last vault is GNU-1174."
WINDOW = 3000
TOGETHER = "Compare the passwords of the vaults."


@pytest.fixture(scope="module")
def database(stack: Stack) -> Iterator[Database]:
    made = stack.database()
    yield made
    made.dispose()


@pytest.fixture(scope="module")
def small(stack: Stack, database: Database) -> Iterator[Door]:
    """An engine with a window of 3,000 tokens."""
    with proof.door(stack, database, window_tokens=WINDOW) as made:
        yield made


@pytest.fixture(scope="module")
def wide(stack: Stack, database: Database) -> Iterator[Door]:
    """An engine whose window holds everything."""
    with proof.door(stack, database, window_tokens=100_000) as made:
        yield made


@pytest.fixture(scope="module")
def long_corpus(stack: Stack) -> str:
    """Three documents, 30 % longer than the small window, with a word in the first and in the last sentence."""
    filler = [f"Clause {n} obliges the parties to keep the records of year {n} in good order." for n in range(300)]
    third = len(filler) // 3
    parts = [[FIRST, *filler[:third]], filler[third : 2 * third], [*filler[2 * third :], LAST]]
    files = [(f"part-{n}.txt", "\n\n".join(part).encode()) for n, part in enumerate(parts, start=1)]
    words = sum(len(content.split()) for _, content in files)
    assert words > 1.3 * WINDOW
    collection = ""
    with stack.client() as client:
        collection = str(client.post("/api/v1/collections", json={"name": f"long {uuid4()}"}).json()["id"])
        for name, content in files:  # one after the other: the canonical order follows time
            document = upload(client, collection, name, content)["document"]["id"]
            assert wait_for_end(client, document)["state"] == "indexed"
    return collection


@pytest.fixture(scope="module")
def two_pages(stack: Stack) -> str:
    return proof.filled(
        stack,
        [
            ("lease.txt", b"The monthly rent is 4,250 euros.\n\nThe deposit is 8,500 euros."),
            ("note.txt", b"Call Anna."),
        ],
    )


def test_a_corpus_over_the_window_is_read_in_disclosed_sections_to_its_first_and_last_sentence(
    small: Door, long_corpus: str
) -> None:
    small.engine.script = proof.quoting("ZEBRA", "GNU")
    small.engine.change(window_tokens=WINDOW)
    small.engine.requests.clear()
    answer = small.ask(long_corpus, TOGETHER)
    assert answer["state"] == "succeeded"
    assert {c["quote"] for c in answer["citations"] if c["verified"]} == {FIRST, LAST}
    coverage = answer["coverage"]
    assert coverage["sections"] >= 2
    assert coverage["pages_read"] == coverage["pages_total"] == 3
    assert f"in {coverage['sections']} sections" in coverage["sentence"]
    assert any(f"{coverage['sections']} sections" in reason for reason in answer["route_reasons"])
    # Every section went out, and the merge; together they hold every clause.
    bodies = [request.body["messages"] for request in small.engine.requests]
    assert len(bodies) == coverage["sections"] + 1
    sent = "\n".join(str(messages[-1]["content"]) for messages in bodies[:-1])
    assert {int(n) for n in re.findall(r"Clause (\d+) obliges", sent)} == set(range(300))
    assert [p["purpose"] for p in answer["run"]["prompts"]][-1] == "merge"


def test_what_fits_the_window_is_one_call_with_the_question_last(wide: Door, long_corpus: str) -> None:
    wide.engine.script = proof.quoting("ZEBRA", "GNU")
    wide.engine.change(window_tokens=100_000)
    wide.engine.requests.clear()
    answer = wide.ask(long_corpus, TOGETHER)
    assert len(wide.engine.requests) == 1
    content = wide.engine.requests[0].body["messages"][-1]["content"]
    assert content.rstrip().endswith(f"Question: {TOGETHER}")
    assert answer["coverage"]["sections"] == 1
    assert {c["quote"] for c in answer["citations"] if c["verified"]} == {FIRST, LAST}
    # The next question finds the corpus in the engine's cache.
    second = wide.ask(long_corpus, "What obliges the parties?")
    assert second["tokens"]["cached"] > 0.9 * second["tokens"]["engine"]


@pytest.mark.parametrize("offset", [-700, -1, 1])
def test_an_engine_that_counts_other_tokens_than_it_was_sent_fails_the_answer_with_both_numbers(
    wide: Door, two_pages: str, database: Database, stack: Stack, offset: int
) -> None:
    wide.engine.script = proof.quoting("rent")
    wide.engine.change(window_tokens=100_000, usage_offset=offset)
    with wide.client() as client:
        reply = client.post(
            f"/api/v1/collections/{two_pages}/answers", json={"question": "What is the rent?", "route": "full"}
        )
    assert reply.status_code == 502
    problem = reply.json()
    assert problem["code"] == "token_mismatch"
    assert problem["engine"] == problem["counted"] + offset
    assert str(problem["engine"]) in problem["detail"]
    assert str(problem["counted"]) in problem["detail"]
    with database.tenant(stack.owner.tenant_id) as uow:
        row = uow.session.execute(
            text("select state, text from answers where collection_id = :c order by id desc limit 1"),
            {"c": UUID(two_pages)},
        ).one()
    assert tuple(row) == ("failed", "")


@pytest.mark.parametrize(
    ("mark", "verified"),
    [
        ('[1: "The monthly rent is 4,250 euros."]', True),
        ('[1: "The monthly rent is 4,251 euros."]', False),
        ('[1: "The monthly rent is paid in gold."]', False),
        ('[2: "The monthly rent is 4,250 euros."]', False),
        ('[1: "Call Anna."]', False),
    ],
)
def test_a_quote_that_is_invented_altered_or_put_on_the_wrong_page_is_shown_as_unverified(
    wide: Door, two_pages: str, mark: str, verified: bool
) -> None:
    def reply(messages: Messages) -> str:
        # The documents' order follows their upload: find out which page is the lease's.
        lease = next(number for number, page in proof.pages(messages).items() if "rent" in page)
        number = {1: lease, 2: 3 - lease}[int(mark[1])]
        return f"The rent is 4,250 euros. [{number}{mark[2:]}"

    wide.engine.change(text=reply, usage_offset=0)
    answer = wide.ask(two_pages, "What is the rent?")
    assert [c["verified"] for c in answer["citations"]] == [verified]


def _contracts() -> list[tuple[str, bytes]]:
    files = []
    for n in range(12):
        words = [f"Agreement number {n} between Alder {n} Ltd and Birch {n} Ltd.", f"It is signed in town {n}."]
        if n < 5:
            words.append(f"Alder {n} Ltd is the exclusive distributor in region {n}.")
        elif n < 7:
            words.append(f"Alder {n} Ltd is not an exclusive distributor in region {n}.")
        files.append((f"agreement-{n:02}.txt", "\n\n".join(words).encode()))
    return files


@pytest.fixture(scope="module")
def contracts(stack: Stack) -> str:
    return proof.filled(stack, _contracts())


COUNTED = "How many contracts have an exclusive distributor?"


def _verdicts(messages: Messages) -> str:
    page = " ".join(proof.pages(messages).values())
    found = re.search(r"Alder \d+ Ltd is (not an|the) exclusive distributor in region \d+\.", page)
    if found is None:
        return '{"verdict": "silent", "quote": ""}'
    verdict = "no" if found.group(1) == "not an" else "yes"
    return f'{{"verdict": "{verdict}", "quote": "{found.group()}"}}'


def test_documents_with_a_property_are_counted_with_quotes_and_the_others_are_listed(
    wide: Door, contracts: str
) -> None:
    wide.engine.change(text=_verdicts, usage_offset=0)
    wide.engine.requests.clear()
    answer = wide.ask(contracts, COUNTED, route="auto")
    assert answer["route"] == "full"
    assert answer["run"]["by_document"] is True
    assert answer["tally"] == {"yes": 5, "no": 2, "silent": 5, "unproved": 0}
    by_verdict: dict[str, set[str]] = {"yes": set(), "no": set(), "silent": set()}
    cited = {c["ordinal"]: c for c in answer["citations"]}
    for verdict in answer["verdicts"]:
        by_verdict[verdict["verdict"]].add(verdict["document"])
        if verdict["verdict"] != "silent":
            (ordinal,) = verdict["ordinals"]
            assert cited[ordinal]["verified"]
            assert cited[ordinal]["document"] == verdict["document"]
    assert by_verdict["yes"] == {f"agreement-{n:02}.txt" for n in range(5)}
    assert by_verdict["no"] | by_verdict["silent"] == {f"agreement-{n:02}.txt" for n in range(5, 12)}
    for n in range(12):
        assert f"agreement-{n:02}.txt" in answer["text"]
    assert answer["text"].startswith("5 of 12")
    assert len(wide.engine.requests) == 12
    assert all(request.body["response_format"]["type"] == "json_schema" for request in wide.engine.requests)
    assert answer["coverage"]["pages_read"] == 12


def test_a_question_for_the_documents_without_a_property_counts_those_without(wide: Door, contracts: str) -> None:
    wide.engine.change(text=_verdicts, usage_offset=0)
    answer = wide.ask(contracts, "How many contracts do not have an exclusive distributor?", route="auto")
    assert answer["tally"] == {"yes": 5, "no": 2, "silent": 5, "unproved": 0}
    assert answer["text"].startswith("7 of 12")
    without, _, with_it = answer["text"].partition("With it:\n")
    assert all(f"agreement-{n:02}.txt" in without for n in range(5, 12))
    assert all(f"agreement-{n:02}.txt" in with_it for n in range(5))


def test_a_verdict_without_a_quote_in_its_document_is_never_counted(wide: Door, contracts: str) -> None:
    def lies(messages: Messages) -> str:
        page = " ".join(proof.pages(messages).values())
        if "number 3 " in page:
            return '{"verdict": "yes", "quote": "Alder 4 Ltd is the exclusive distributor in region 4."}'
        if "number 9 " in page:
            return '{"verdict": "yes", "quote": ""}'
        if "number 10 " in page:
            return "I think it does."
        return _verdicts(messages)

    wide.engine.change(text=lies)
    answer = wide.ask(contracts, COUNTED)
    assert answer["tally"] == {"yes": 4, "no": 2, "silent": 3, "unproved": 3}
    unproved = {v["document"] for v in answer["verdicts"] if not v["proved"]}
    assert unproved == {"agreement-03.txt", "agreement-09.txt", "agreement-10.txt"}


def test_the_extractive_form_counts_by_the_documents_own_sentences_after_reading_every_page(
    stack: Stack, database: Database, contracts: str
) -> None:
    with proof.door(stack, database, form="extractive") as door:
        door.engine.change(text="yes")
        answer = door.ask(contracts, COUNTED)
        sent = [str(request.body["messages"][-1]["content"]) for request in door.engine.requests]
    assert len(sent) == 12
    assert {int(n) for s in sent for n in re.findall(r"Agreement number (\d+)", s)} == set(range(12))
    counted = {v["document"] for v in answer["verdicts"] if v["verdict"] == "yes"}
    assert counted == {f"agreement-{n:02}.txt" for n in range(5)}
    assert {v["document"] for v in answer["verdicts"] if v["verdict"] == "no"} == {
        "agreement-05.txt",
        "agreement-06.txt",
    }
    assert all(c["verified"] for c in answer["citations"])


def test_selected_documents_are_read_and_the_others_are_named(wide: Door, contracts: str, client: httpx.Client) -> None:
    wide.engine.script = proof.quoting("exclusive")
    wide.engine.change(window_tokens=100_000)
    listed = client.get(f"/api/v1/collections/{contracts}/documents", params={"limit": 200}).json()["items"]
    chosen = [d["id"] for d in listed if d["name"] in ("agreement-01.txt", "agreement-06.txt")]
    for route in ("full", "retrieval"):
        answer = wide.ask(contracts, "Who is the exclusive distributor?", route=route, document_ids=chosen)
        assert answer["selection"]["document_ids"] == chosen
        assert {c["document"] for c in answer["citations"]} <= {"agreement-01.txt", "agreement-06.txt"}
        skipped = [s for s in answer["coverage"]["skipped"] if s["reason"] == "not_selected"]
        assert len(skipped) == 10
        assert answer["coverage"]["documents_total"] == 12
    with wide.client() as asking:
        foreign = asking.post(
            f"/api/v1/collections/{contracts}/answers",
            json={"question": "Who?", "route": "full", "document_ids": [str(uuid4())]},
        )
    assert (foreign.status_code, foreign.json()["code"]) == (422, "unknown_documents")


def test_pages_over_the_budget_of_a_full_pass_are_named(stack: Stack, database: Database, long_corpus: str) -> None:
    with proof.door(stack, database, window_tokens=100_000, full_pass_tokens=1500) as door:
        door.engine.script = proof.quoting("ZEBRA", "GNU")
        door.engine.change(window_tokens=100_000)
        answer = door.ask(long_corpus, TOGETHER)
    assert [c["quote"] for c in answer["citations"]] == [FIRST]
    over = [s for s in answer["coverage"]["skipped"] if s["reason"] == "budget"]
    assert [s["document"] for s in over] == ["part-2.txt", "part-3.txt"]
    assert answer["coverage"]["pages_read"] == 1
    assert "budget" in answer["coverage"]["sentence"]


def test_a_summary_quotes_no_document_that_was_not_read(stack: Stack, database: Database, long_corpus: str) -> None:
    with proof.door(stack, database, form="extractive", full_pass_tokens=1500) as door:
        door.engine.change(text="It is about clauses.")
        answer = door.ask(long_corpus, "Summarise the documents.")
    left_out = {s["document"] for s in answer["coverage"]["skipped"] if s["reason"] == "budget" and s["whole_document"]}
    assert left_out
    assert answer["citations"]
    assert not {c["document"] for c in answer["citations"]} & left_out


def test_the_same_question_twice_has_the_same_run_record_and_a_new_version_is_named(
    wide: Door, stack: Stack, client: httpx.Client
) -> None:
    collection = proof.filled(stack, [("a.txt", b"The rent is 100 euros."), ("b.txt", b"The deposit is 50 euros.")])
    wide.engine.script = proof.quoting("rent")
    wide.engine.change(window_tokens=100_000)
    first = wide.ask(collection, "What is the rent?")
    with wide.client() as asking:
        second = asking.post(f"/api/v1/answers/{first['id']}/again").json()
    assert second["run"] == first["run"]
    assert second["again_of"] == first["id"]
    assert second["changes"] == []
    document = client.get(f"/api/v1/collections/{collection}/documents", params={"limit": 50}).json()["items"]
    target = next(d for d in document if d["name"] == "a.txt")
    upload(client, collection, "a.txt", b"The rent is 120 euros.")
    deadline = time.monotonic() + 60
    while client.get(f"/api/v1/documents/{target['id']}").json()["state"] != "indexed":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with wide.client() as asking:
        third = asking.post(f"/api/v1/answers/{first['id']}/again").json()
    said = [" ".join(filter(None, (c["what"], c["before"], c["after"]))) for c in third["changes"]]
    assert "a.txt" in said[0]
    assert any("120 euros" in change for change in said)
    assert not any("b.txt" in change for change in said)
    stored = client.get(f"/api/v1/answers/{third['id']}").json()
    assert stored["run"] == third["run"]


LEASE = (
    b"# Lease of the Girona warehouse\n\nThe monthly rent of the warehouse in Girona is 4,250 euros, payable in"
    b" advance on the fifth day of each month.\n\nThe tenant may terminate this lease with a written notice of ninety"
    b" days.\n\nThe deposit amounts to 8,500 euros and is returned within thirty days after the end of the lease.\n"
)
RENT = "What is the monthly rent of the warehouse in Girona?"


@pytest.fixture
def full(stack: Stack, database: Database) -> Iterator[list[admission.Seat]]:
    """The local engine with both seats taken."""
    engine = catalog.profile(stack.settings).engine_id
    taken = [
        admission.try_acquire(database, engine, tenant_id=stack.owner.tenant_id, lane="interactive", holder="test")
        for _ in range(2)
    ]
    seats = [seat for seat in taken if seat is not None]
    assert len(seats) == 2
    yield seats
    for seat in seats:
        admission.release(database, seat)


@contextmanager
def impatient(stack: Stack) -> Iterator[Door]:
    """The app over the stack's own engine, with a short wait for a seat."""
    with served(create_app(stack.settings.model_copy(update={"engine_wait_s": 0.3}))) as url:
        yield Door(url, ScriptedEngine(), stack.settings, stack)


def queued_answer(client: httpx.Client, collection: str) -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while True:
        listed = client.get("/api/v1/answers", params={"collection_id": collection, "limit": 5}).json()["items"]
        if found := [answer for answer in listed if answer["state"] == "queued"]:
            return dict(found[0])
        assert time.monotonic() < deadline, "the question was never queued"
        time.sleep(0.1)


def test_without_a_free_seat_the_question_becomes_a_job_whose_place_and_end_are_streamed(
    stack: Stack, database: Database, client: httpx.Client, full: list[admission.Seat]
) -> None:
    collection = proof.filled(stack, [("lease.md", LEASE)])
    seen: list[tuple[str, dict[str, Any]]] = []
    with impatient(stack) as door:
        path, body = f"/api/v1/collections/{collection}/answers", {"question": RENT, "route": "full"}
        asking = threading.Thread(target=lambda: seen.extend(door.events(path, body)))
        asking.start()
        waiting = queued_answer(client, collection)
        for seat in full:
            admission.release(database, seat)
        asking.join(timeout=120)
    assert [data["phase"] for kind, data in seen if kind == "status" and data["phase"] in ("queued", "reading")]
    kind, answer = seen[-1]
    assert kind == "answer", seen
    assert answer["id"] == waiting["id"]
    assert answer["state"] == "succeeded"
    assert "4,250 euros" in answer["citations"][0]["quote"]
    assert [data for kind, data in seen if kind == "citation"] == answer["citations"]
    job = wait_for_job(client, answer["job_id"])
    assert (job["kind"], job["state"]) == ("analysis", "succeeded")


def test_a_queued_analysis_goes_on_without_its_client_and_its_asker_can_cancel_it(
    stack: Stack, client: httpx.Client, full: list[admission.Seat]
) -> None:
    collection = proof.filled(stack, [("lease.md", LEASE)])
    path, body = f"/api/v1/collections/{collection}/answers", {"question": RENT, "route": "full"}
    with (
        impatient(stack) as door,
        door.client() as asking,
        asking.stream("POST", path, json=body, headers={"accept": "text/event-stream"}) as reply,
    ):
        assert any('"queued"' in line and '"position": 1' in line for line in reply.iter_lines())
    waiting = queued_answer(client, collection)
    cancelled = client.post(f"/api/v1/jobs/{waiting['job_id']}/cancel")
    assert cancelled.status_code == 202, cancelled.text
    assert wait_for_job(client, waiting["job_id"])["state"] == "cancelled"
    answer = client.get(f"/api/v1/answers/{waiting['id']}").json()
    assert (answer["state"], answer["code"]) == ("cancelled", "analysis_cancelled")
    again = client.post(f"/api/v1/jobs/{waiting['job_id']}/cancel")
    assert (again.status_code, again.json()["code"]) == (409, "not_cancellable")
