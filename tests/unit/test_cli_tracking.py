"""The tracker asks about every file sooner or later, and about few at a time."""

from collections.abc import Iterator
from typing import Any

import pytest

from app.cli.client import Api
from app.cli.output import CommandError
from app.cli.tracking import FileState, Tracker
from tests.support.scripted_api import TOKEN, ScriptedApi, scripted_api

STUCK = 10
ALL = 20


@pytest.fixture
def server() -> Iterator[ScriptedApi]:
    with scripted_api() as made:
        yield made


@pytest.fixture
def client(server: ScriptedApi) -> Iterator[Api]:
    with Api(server.url, TOKEN) as made:
        yield made


def tracked(server: ScriptedApi, client: Api) -> Tracker:
    """The oldest files stay in work; all behind them are done at the second look."""
    tracker = Tracker(client)
    for number in range(ALL):
        name = f"{number}.txt"
        server.states[name] = [{"state": "parsing"}, {"state": "parsing" if number < STUCK else "indexed"}]
        document: dict[str, Any] = server.document("c", name, state="received")
        tracker.put(number, FileState(name, name, "received").with_document(document))
    return tracker


def test_files_behind_stuck_ones_are_found_done(
    server: ScriptedApi, client: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tracker, "wait_s", lambda _: 0.0)
    tracker = tracked(server, client)
    for _ in range(6):
        before = len(server.requests)
        tracker.round()
        assert len(server.requests) - before <= 16 + ALL - STUCK
    assert [file.name for file in tracker.working] == [f"{n}.txt" for n in range(STUCK)]
    assert [file.name for file in tracker.files] == [f"{n}.txt" for n in range(ALL)]


def test_rounds_keep_their_distance(server: ScriptedApi, client: Api) -> None:
    tracker = tracked(server, client)
    tracker.round()
    asked = len(server.requests)
    tracker.round()
    assert len(server.requests) == asked
    assert tracker.wait_s() > 0


def test_a_stall_is_explained_by_what_the_server_lacks(
    server: ScriptedApi, client: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.cli.tracking._STALLED_S", 0.0)
    monkeypatch.setattr(Tracker, "wait_s", lambda _: 0.0)
    server.missing = ["workers: nobody consumes the queue 'ingest'"]
    tracker = tracked(server, client)
    for _ in range(6):
        tracker.round()
    assert tracker.missing == server.missing


def test_other_failures_are_not_swallowed(server: ScriptedApi, client: Api) -> None:
    tracker = tracked(server, client)
    server.tokens.clear()
    with pytest.raises(CommandError) as caught:
        tracker.round()
    assert caught.value.status == 401
