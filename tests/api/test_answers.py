"""Answers by the shipped app over the real stack, with a scripted model server: proof, refusal, disconnects, lies."""

import json
import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import httpx
import pytest
from sqlalchemy import text

from app.core.db import Database
from app.engine import admission, catalog
from app.main import create_app
from app.settings import Settings
from tests.support import chat_script
from tests.support.chat_script import Script
from tests.support.served import served
from tests.support.stack import Stack, upload, wait_for_end

LEASE = (
    b"# Lease of the Girona warehouse\n\nThe monthly rent of the warehouse in Girona is 4,250 euros, payable in"
    b" advance on the fifth day of each month.\n\nThe tenant may terminate this lease with a written notice of ninety"
    b" days.\n\nThe deposit amounts to 8,500 euros and is returned within thirty days after the end of the lease.\n"
)
QUESTION = "What is the monthly rent of the warehouse in Girona?"
#: The limit of the product's promise; the rest is the machine.
FREE_WITHIN_S = 2.0


class Door:
    """The app with a scripted engine behind it."""

    def __init__(self, url: str, script: Script, settings: Settings, stack: Stack) -> None:
        self.url = url
        self.script = script
        self.engine_id = catalog.profile(settings).engine_id
        self.stack = stack

    def client(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.stack.owner.api_key}"}, timeout=60
        )


def door(stack: Stack, database: Database, form: str, slots: int = 2) -> Iterator[Door]:
    script = Script()
    with served(chat_script.application(script)) as engine_url:
        settings = stack.settings.model_copy(
            update={
                "engine_url": engine_url,
                "engine_model": "scripted",
                "engine_answer_form": form,
                "engine_slots": slots,
                "engine_wait_s": 1.0,
            }
        )
        profile = catalog.profile(settings)
        admission.register(
            database, engine_id=profile.engine_id, name="scripted", url=profile.url, model="scripted", slots=slots
        )
        with served(create_app(settings)) as url:
            yield Door(url, script, settings, stack)


@pytest.fixture(scope="module")
def database(stack: Stack) -> Iterator[Database]:
    made = stack.database()
    yield made
    made.dispose()


@pytest.fixture
def extractive(stack: Stack, database: Database) -> Iterator[Door]:
    yield from door(stack, database, "extractive")


@pytest.fixture
def generative(stack: Stack, database: Database) -> Iterator[Door]:
    yield from door(stack, database, "generative")


@pytest.fixture(scope="module")
def lease(stack: Stack) -> str:
    """A collection that holds the lease."""
    with stack.client() as client:
        made = client.post("/api/v1/collections", json={"name": f"lease {time.time_ns()}"}).json()["id"]
        document = upload(client, made, "lease.md", LEASE)["document"]["id"]
        assert wait_for_end(client, document)["state"] == "indexed"
    return str(made)


def ask(door: Door, collection: str, question: str = QUESTION) -> dict[str, Any]:
    with door.client() as client:
        answer = client.post(
            f"/api/v1/collections/{collection}/answers", json={"question": question, "route": "retrieval"}
        )
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def recorded(stack: Stack, database: Database, answer_id: str) -> dict[str, Any]:
    """The stored answer, waiting a little for a record that is being written."""
    deadline = time.monotonic() + 5
    while True:
        with database.tenant(stack.owner.tenant_id) as uow:
            row = (
                uow.session.execute(text("select * from answers where id = :id"), {"id": answer_id}).mappings().first()
            )
        if row is not None:
            return dict(row)
        assert time.monotonic() < deadline, "the answer was never recorded"
        time.sleep(0.05)


def latest(stack: Stack, database: Database, collection: str, state: str) -> dict[str, Any] | None:
    with database.tenant(stack.owner.tenant_id) as uow:
        row = (
            uow.session.execute(
                text("select * from answers where collection_id = :c and state = :s order by id desc limit 1"),
                {"c": collection, "s": state},
            )
            .mappings()
            .first()
        )
    return dict(row) if row is not None else None


def test_quotes_are_verified_placed_and_recorded_with_an_audit_row(
    stack: Stack, database: Database, client: httpx.Client, extractive: Door, lease: str
) -> None:
    extractive.script.pieces = ["The monthly rent ", "is 4,250 euros."]
    answer = ask(extractive, lease)
    assert answer["state"] == "succeeded"
    assert (answer["route"], answer["form"]) == ("retrieval", "extractive")
    best = answer["citations"][0]
    assert best["verified"] is True
    assert "4,250 euros" in best["quote"]
    page = client.get(f"/api/v1/documents/{best['document_id']}/pages/{best['page']}").json()
    start, end = best["char_start"] - page["char_start"], best["char_end"] - page["char_start"]
    assert page["text"][start:end] == best["quote"]
    assert answer["text"].startswith("The monthly rent is 4,250 euros."), "supported by the quote, so it is shown"
    assert answer["tokens"]["counted"] == answer["tokens"]["engine"] > 0
    coverage = answer["coverage"]
    assert coverage["pages_total"] == coverage["pages_read"] + coverage["pages_searched_only"] == 1
    row = recorded(stack, database, answer["id"])
    assert (row["state"], row["question"]) == ("succeeded", QUESTION)
    with database.tenant(stack.owner.tenant_id) as uow:
        audited = text("select outcome from audit_events where object_id = :id and action = 'answer.record'")
        assert uow.session.execute(audited, {"id": answer["id"]}).scalars().all() == ["succeeded"]
    shown = client.get(f"/api/v1/answers/{answer['id']}").json()
    assert [c["quote"] for c in shown["citations"]] == [c["quote"] for c in answer["citations"]]


@pytest.mark.parametrize("lie", ["The monthly rent is 4,205 euros.", "Rent is 4,250 dollars to Barcelona Estates."])
def test_the_models_sentence_is_left_out_when_the_quotes_do_not_hold_it(extractive: Door, lease: str, lie: str) -> None:
    extractive.script.pieces = [lie]
    answer = ask(extractive, lease)
    assert lie not in answer["text"]
    assert "4,250 euros" in answer["text"]
    assert any("left out" in reason for reason in answer["route_reasons"])


def test_not_found_asks_no_model_and_says_what_was_searched(extractive: Door, lease: str) -> None:
    answer = ask(extractive, lease, "Who is the managing director of the insurance company?")
    assert answer["state"] == "not_found"
    assert answer["citations"] == []
    assert "1 document, 1 page searched" in answer["text"]
    assert extractive.script.requests == []


def test_an_empty_collection_is_not_found(extractive: Door, collection: str) -> None:
    assert ask(extractive, collection)["state"] == "not_found"


def test_each_tenant_has_its_own_cache_salt(extractive: Door, lease: str) -> None:
    ask(extractive, lease)
    salt = extractive.script.requests[0]["cache_salt"]
    assert len(salt) == 64
    assert int(salt, 16) >= 0


def test_generated_quotes_are_checked(generative: Door, lease: str) -> None:
    generative.script.pieces = [
        'The rent is 4,250 euros. [1: "The monthly rent of the warehouse in Girona is 4,250 ',
        'euros"] The deposit is 8,500. [1: "The deposit amounts to 8,501 euros"] Pets are welcome. [1: "Pets are"]',
        ' Nothing. [77: "no such source"]',
    ]
    answer = ask(generative, lease)
    assert [c["verified"] for c in answer["citations"]] == [True, False, False]
    assert answer["citations"][0]["page"] == 1
    assert "[1]" in answer["text"]
    assert "[77" not in answer["text"]
    assert any("dropped" in reason for reason in answer["route_reasons"])


def test_a_model_that_says_not_found_is_believed(generative: Door, lease: str) -> None:
    generative.script.pieces = ["NOT IN ", "THE SOURCES"]
    assert ask(generative, lease)["state"] == "not_found"


def test_a_wrong_token_count_is_an_error_with_both_numbers(
    stack: Stack, database: Database, generative: Door, lease: str
) -> None:
    generative.script.extra_prompt_tokens = -7
    with generative.client() as client:
        answer = client.post(f"/api/v1/collections/{lease}/answers", json={"question": QUESTION, "route": "retrieval"})
    assert answer.status_code == 502
    problem = answer.json()
    assert problem["code"] == "token_mismatch"
    assert problem["counted"] - problem["engine"] == 7
    row = latest(stack, database, lease, "failed")
    assert row is not None
    assert row["code"] == "token_mismatch"
    assert row["text"] == ""


@pytest.mark.parametrize(("status", "cut", "code"), [(503, None, 503), (400, None, 502), (200, 1, 503)])
def test_an_engine_that_fails_is_a_typed_error_for_generated_answers(
    generative: Door, lease: str, status: int, cut: int | None, code: int
) -> None:
    generative.script.status, generative.script.cut_after = status, cut
    with generative.client() as client:
        answer = client.post(f"/api/v1/collections/{lease}/answers", json={"question": QUESTION, "route": "retrieval"})
    assert answer.status_code == code, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


def test_an_engine_that_fails_leaves_the_quotes_standing(extractive: Door, lease: str) -> None:
    extractive.script.status = 503
    answer = ask(extractive, lease)
    assert answer["state"] == "succeeded"
    assert answer["citations"][0]["verified"] is True
    assert any("left out" in reason for reason in answer["route_reasons"])


def test_events_come_in_order(extractive: Door, lease: str) -> None:
    with (
        extractive.client() as client,
        client.stream(
            "POST",
            f"/api/v1/collections/{lease}/answers",
            json={"question": QUESTION, "route": "retrieval"},
            headers={"Accept": "text/event-stream"},
        ) as reply,
    ):
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = list(reply.iter_lines())
    kinds = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
    assert kinds[0] == "status"
    assert kinds[-1] == "answer"
    assert kinds.index("citation") < kinds.index("delta") < kinds.index("answer")
    final = json.loads([line for line in lines if line.startswith("data: ")][-1].removeprefix("data: "))
    assert final["state"] == "succeeded"


def leave(door: Door, collection: str, *, stream: bool, after_s: float) -> float:
    """Ask and close the connection after a while; returns when it was closed."""
    headers = {"Accept": "text/event-stream"} if stream else {}
    client = door.client()
    url = f"/api/v1/collections/{collection}/answers"

    def run() -> None:
        try:
            with client.stream(
                "POST", url, json={"question": QUESTION, "route": "retrieval"}, headers=headers
            ) as reply:
                for _ in reply.iter_raw():
                    pass
        except (httpx.HTTPError, RuntimeError, OSError, AttributeError):
            pass  # the connection is closed under it: that is the test

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while door.script.began == 0 and after_s >= 0:
        assert time.monotonic() < deadline, "the engine was never asked"
        time.sleep(0.01)
    time.sleep(abs(after_s))
    closed_at = time.monotonic()
    _abort(client)
    return closed_at


def _abort(client: httpx.Client) -> None:
    """Close the client's sockets, as a browser does that goes away."""
    import socket

    pool = client._transport._pool  # type: ignore[attr-defined]
    for connection in pool.connections:
        raw = connection._connection._network_stream.get_extra_info("socket")
        raw.shutdown(socket.SHUT_RDWR)
        raw.close()


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("form", ["extractive", "generative"])
def test_a_client_that_leaves_frees_the_engine(
    request: pytest.FixtureRequest, stack: Stack, database: Database, lease: str, form: str, phase: str, stream: bool
) -> None:
    door: Door = request.getfixturevalue(form)
    door.script.pieces = ["word "] * 400
    door.script.prefill_s = 30.0 if phase == "prefill" else 0.0
    door.script.piece_s = 0.1
    before = latest(stack, database, lease, "abandoned")
    closed_at = leave(door, lease, stream=stream, after_s=0.5)
    deadline = closed_at + FREE_WITHIN_S + 3
    while door.script.left_at is None or admission.busy_blocks(database, door.engine_id):
        assert time.monotonic() < deadline, "the engine still works for a client that has left"
        time.sleep(0.02)
    assert door.script.left_at - closed_at < FREE_WITHIN_S
    row = None
    while row is None or (before is not None and row["id"] == before["id"]):
        assert time.monotonic() < deadline + 3, "the abandoned answer was not recorded"
        row = latest(stack, database, lease, "abandoned")
        time.sleep(0.02)
    assert row["code"] == "client_left"
    with database.tenant(stack.owner.tenant_id) as uow:
        audited = text("select outcome from audit_events where object_id = :id")
        assert uow.session.execute(audited, {"id": str(row["id"])}).scalars().all() == ["abandoned"]


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "json"])
def test_a_client_that_leaves_while_waiting_for_a_seat(
    stack: Stack, database: Database, extractive: Door, lease: str, stream: bool
) -> None:
    seats = [
        admission.try_acquire(
            database, extractive.engine_id, tenant_id=stack.owner.tenant_id, lane="interactive", holder="other"
        )
        for _ in range(2)
    ]
    assert all(seats)
    before = latest(stack, database, lease, "abandoned")
    leave(extractive, lease, stream=stream, after_s=-0.8)
    deadline = time.monotonic() + 8
    row = before
    while row == before:
        assert time.monotonic() < deadline, "the abandoned answer was not recorded"
        time.sleep(0.05)
        row = latest(stack, database, lease, "abandoned") or latest(stack, database, lease, "succeeded")
    assert extractive.script.began == 0
    for seat in seats:
        assert seat is not None
        admission.release(database, seat)
    assert admission.busy_blocks(database, extractive.engine_id) == 0


def test_a_question_over_a_foreign_collection_is_404_in_both_forms(
    stack: Stack, extractive: Door, stranger: Any, lease: str
) -> None:
    for accept in ("application/json", "text/event-stream"):
        answer = httpx.post(
            f"{extractive.url}/api/v1/collections/{lease}/answers",
            json={"question": QUESTION, "route": "retrieval"},
            headers={"Authorization": f"Bearer {stranger.api_key}", "Accept": accept},
            timeout=30,
        )
        assert answer.status_code == 404
    assert extractive.script.requests == []


def test_answers_are_listed_to_their_owner_only(client: httpx.Client, extractive: Door, lease: str, user: Any) -> None:
    mine = ask(extractive, lease)
    user_id, reader = user("viewer")
    client.put(f"/api/v1/collections/{lease}/grants/{user_id}", json={"role": "viewer"}).raise_for_status()
    assert UUID(mine["id"])
    assert reader.get("/api/v1/answers").json()["items"] == []
    assert reader.get(f"/api/v1/answers/{mine['id']}").status_code == 404
    ids = [a["id"] for a in client.get("/api/v1/answers", params={"collection_id": lease}).json()["items"]]
    assert mine["id"] in ids
