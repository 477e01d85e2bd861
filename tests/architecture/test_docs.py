"""The documents name what the code has: settings, codes, routes."""

import json
import re

from app.settings import Settings
from ingestion.errors import CODES
from tests.architecture.tree import ROOT, load_tool

CODE = re.compile(r"`([^`\n]+)`")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def code_words(name: str) -> str:
    """Everything that stands between back-ticks in a document, one a line, without whole blocks of code."""
    return "\n".join(CODE.findall(FENCED.sub("", (ROOT / "docs" / name).read_text(encoding="utf-8"))))


def test_every_setting_is_documented_and_none_is_invented() -> None:
    known = {field.alias for field in Settings.model_fields.values() if field.alias}
    text = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    table = "\n".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    named = set(re.findall(r"`([A-Z]+_[A-Z0-9_]+)`", table))
    assert named == known


def test_every_code_of_ingestion_is_documented() -> None:
    words = code_words("api.md").split("\n")
    assert not CODES.keys() - set(words)


def test_every_route_is_documented_and_the_snapshot_is_current() -> None:
    tool = load_tool("openapi")
    described = tool.described()
    assert described == (ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"), "run `make openapi`"
    documented = {
        re.sub(r"\{[^}]*\}", "{}", path.split("?")[0])
        for path in re.findall(r"(/[a-z][^\s`;,]*)", code_words("api.md"))
    }
    routes = {re.sub(r"\{[^}]*\}", "{}", path.removeprefix("/api/v1")) for path in json.loads(described)["paths"]}
    assert len(routes) > 15
    assert not routes - documented, sorted(routes - documented)


def test_commands_in_the_documents_exist() -> None:
    from app.cli.program import program

    known = {group.name for group in program.registered_groups}
    for command in program.registered_commands:
        assert command.callback is not None
        known.add(command.name or command.callback.__name__)
    texts = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]
    named = {
        name
        for path in texts
        for name in re.findall(
            r"(?:`|/bin/|BIN\)/|^| )fullread ([a-z]+)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert {"up", "down", "ingest", "ask", "models", "demo"} <= named
    assert not named - known
