"""The documents name what the code has: settings, codes, routes."""

import re

from app.main import create_app
from app.settings import Settings
from ingestion.errors import CODES
from tests.architecture.tree import ROOT

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


def test_every_route_is_documented() -> None:
    documented = {
        re.sub(r"\{[^}]*\}", "{}", path.split("?")[0])
        for path in re.findall(r"(/[a-z][^\s`;,]*)", code_words("api.md"))
    }
    routes = {re.sub(r"\{[^}]*\}", "{}", path.removeprefix("/api/v1")) for path in create_app().openapi()["paths"]}
    assert len(routes) > 15
    assert not routes - documented, sorted(routes - documented)
