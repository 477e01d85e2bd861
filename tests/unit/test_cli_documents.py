"""Commands that list and change things, against a scripted server."""

import io
import sys
from pathlib import Path

import pytest

from tests.support.scripted_api import ScriptedApi
from tests.unit.test_cli import Cli, api, bare, cli, place

__all__ = ["api", "bare", "cli", "place"]


@pytest.fixture
def letters(api: ScriptedApi) -> str:
    """A collection with three documents, one of which failed."""
    made = str(api.collection("letters")["id"])
    api.document(made, "a.txt")
    api.document(made, "b.txt", state="failed", code="corrupt", message="It is damaged.", pages_indexed=0)
    api.document(made, "c.txt", state="parsing")
    return made


def test_documents_are_listed_with_state_and_reason(cli: Cli, letters: str) -> None:
    out = cli("documents").out.splitlines()
    assert [line.split()[0] for line in out] == ["state", "indexed", "failed", "parsing"]
    assert "It is damaged. (corrupt)" in out[2]
    assert [d["name"] for d in cli("documents", "--state", "failed", "--json").json["documents"]] == ["b.txt"]


def test_a_long_list_is_read_to_its_end(api: ScriptedApi, cli: Cli) -> None:
    made = api.collection("many")["id"]
    for number in range(401):
        api.document(made, f"{number}.txt")
    assert len(cli("documents", "--json").json["documents"]) == 401


def test_one_document_is_shown(api: ScriptedApi, cli: Cli, letters: str) -> None:
    assert "It is damaged. (corrupt)" in cli("documents", "show", "b.txt").out
    shown = cli("documents", "show", next(iter(api.documents)), "--json").json
    assert (shown["name"], shown["versions"][0]["number"]) == ("a.txt", 1)
    assert cli("documents", "show", "absent.txt", "--json").json["code"] == "document_not_found"


def test_nothing_is_deleted_unless_somebody_says_so(
    api: ScriptedApi, cli: Cli, letters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = cli("delete", "a.txt", "-c", "letters")
    assert outcome.status == 2
    assert "--yes" in outcome.err

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert cli("delete", "a.txt", "-c", "letters").status == 1
    assert len(api.documents) == 3
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert cli("delete", "a.txt", "-c", "letters").status == 0
    assert api.names() == ["b.txt", "c.txt"]


def test_delete_by_name_by_id_and_all(api: ScriptedApi, cli: Cli, letters: str) -> None:
    last = list(api.documents)[2]
    gone = cli("delete", "a.txt", last, "--collection", "letters", "--yes", "--json")
    assert gone.status == 0
    assert [d["document"] for d in gone.json["deleted"]] == ["a.txt", "c.txt"]
    assert cli("delete", "--all", "--yes").status == 2
    assert cli("delete", "b.txt", "--all", "-c", "letters", "--yes").status == 2
    assert cli("delete", "--all", "-c", "letters", "--yes").status == 0
    assert not api.documents
    assert api.collections


def test_a_misspelt_name_deletes_nothing(api: ScriptedApi, cli: Cli, letters: str) -> None:
    assert cli("delete", "a.txt", "absent.txt", "-c", "letters", "--yes").status == 1
    assert len(api.documents) == 3


def test_retry_waits_and_says_what_came_of_it(api: ScriptedApi, cli: Cli, letters: str) -> None:
    api.states["b.txt"] = [{"state": "parsing"}, {"state": "failed", "code": "corrupt", "message": "Still damaged."}]
    again = cli("retry", "--all", "-c", "letters", "--json")
    assert again.status == 3
    assert [(d["name"], d["message"]) for d in again.json["documents"]] == [("b.txt", "Still damaged.")]
    api.states["b.txt"] = [{"state": "indexed", "code": None, "message": None}]
    assert cli("retry", "b.txt").status == 0
    assert cli("retry", "a.txt", "--json").json["code"] == "not_retryable"


def test_cancel_stops_what_is_being_worked_on(api: ScriptedApi, cli: Cli, letters: str) -> None:
    assert [d["name"] for d in cli("cancel", "--all", "-c", "letters", "--json").json["documents"]] == ["c.txt"]
    assert [d["state"] for d in api.documents.values()] == ["indexed", "failed", "cancelled"]
    assert "Nothing is being worked on" in cli("cancel", "--all", "-c", "letters").out


def test_collections(api: ScriptedApi, cli: Cli, letters: str) -> None:
    assert cli("collections", "create", "archive", "--json").json["name"] == "archive"
    assert cli("collections", "create", "Archive", "--json").json["code"] == "name_taken"
    assert [c["name"] for c in cli("collections", "--json").json["collections"]] == ["letters", "archive"]
    assert cli("collections", "status", "letters", "--json").json["documents"] == {
        "indexed": 1, "failed": 1, "parsing": 1,
    }  # fmt: skip
    assert "2 of 3 pages indexed" in cli("collections", "status", "letters").out
    assert cli("collections", "delete", "letters").status == 2
    assert cli("collections", "delete", "letters", "--yes").status == 0
    assert [c["name"] for c in api.collections.values()] == ["archive"]


def test_users_and_grants(api: ScriptedApi, cli: Cli, letters: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("a long password\n"))
    made = cli("users", "add", "ana@example.org", "--role", "editor", "--password-stdin", "--json").json
    assert api.bodies[-1]["password"] == "a long password"
    assert cli("users", "add", "bo@example.org").status == 2
    assert cli("users", "add", "bo@example.org", "--role", "king", "--password-stdin").status == 2
    assert cli("collections", "grant", "letters", "ANA@example.org", "viewer").status == 0
    assert api.grants == {made["id"]: "viewer"}
    assert "ana@example.org" in cli("collections", "grants", "letters").out
    assert cli("collections", "grant", "letters", "nobody@example.org", "viewer").status == 1
    assert cli("collections", "revoke", "letters", made["id"]).status == 0
    assert not api.grants
    assert "disabled" in cli("users", "change", "ana@example.org", "--disable").out
    assert cli("users", "change", "ana@example.org").status == 2
    assert [u["email"] for u in cli("users", "--json").json["users"]] == ["ana@example.org"]


def test_keys_are_shown_once(api: ScriptedApi, cli: Cli) -> None:
    made = cli("keys", "create", "nightly", "--scope", "read", "--scope", "write", "--days", "90")
    assert made.out == "fr_secret\n"
    key = next(iter(api.keys.values()))
    assert key["scopes"] == ["read", "write"]
    assert key["expires_at"]
    assert cli("keys", "create", "x", "--scope", "root").status == 2
    listed = cli("keys").out
    assert "…cret" in listed
    assert "fr_secret" not in listed
    assert cli("keys", "revoke", key["id"], "--yes").status == 0
    assert key["revoked_at"]


def test_a_closed_pipe_is_no_traceback(cli: Cli, letters: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    from app.cli.program import run

    assert run(["documents", "--url", "http://127.0.0.1:9"]) == 1
