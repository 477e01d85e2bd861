"""Rules about the project's files: sizes, names, words, links."""

import ast
import re

import pytest

from tests.architecture.tree import ROOT, modules, syntax, text_files

CODE = ("app", "ingestion", "workers", "tools", "tests", "benchmarks")
MAX_LINES = 500
VAGUE_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"})
# Written in pieces, so that this file passes its own check.
FORBIDDEN = {
    "a path of somebody's machine": re.compile("(?<![\\w.])/(?:wo" + "rk|fa" + "rm|ro" + "ot)/"),
    "the address of a package index": re.compile(
        "py" + "pi\\.org|python" + "hosted|registry\\.npm" + "js|index-" + "url|deb\\.deb" + "ian"
    ),
    "talk about how the code was made": re.compile(
        "[.]lib" + "rary/|sub" + "agent|before-" + "stop|helper " + "session|this " + "session that|issue " + "2\\b",
        re.IGNORECASE,
    ),
}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def test_no_module_is_longer_than_its_limit() -> None:
    lengths = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n") for path in modules(*CODE)}
    assert len(lengths) > 20
    assert not {name: lines for name, lines in lengths.items() if lines > MAX_LINES}


def test_modules_are_named_by_nouns_of_the_domain() -> None:
    assert not [
        str(path.relative_to(ROOT)) for path in modules("app", "ingestion", "workers") if path.stem in VAGUE_NAMES
    ]


def test_every_module_says_what_it_owns() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in modules("app", "ingestion", "workers", "tools")
        if path.read_text(encoding="utf-8").strip() and not ast.get_docstring(syntax(path))
    ]
    assert not silent


@pytest.mark.parametrize("kind", sorted(FORBIDDEN))
def test_forbidden_words_stand_nowhere(kind: str) -> None:
    found = []
    for path in text_files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if FORBIDDEN[kind].search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not found, kind


def test_the_lock_is_hashed_and_names_no_index() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pins = [number for number, line in enumerate(lines) if re.match(r"[a-z0-9]", line)]
    assert len(pins) > 100
    assert all("==" in lines[number] and "--hash=sha256:" in lines[number + 1] for number in pins)
    assert not [line for line in lines if "://" in line or line.startswith("--")]


def test_links_between_documents_lead_somewhere() -> None:
    checked, broken = 0, []
    for path in text_files():
        if path.suffix != ".md":
            continue
        for target in LINK.findall(path.read_text(encoding="utf-8")):
            if "://" in target or target.startswith(("#", "mailto:")):
                continue
            checked += 1
            if not (path.parent / target.split("#")[0]).exists():
                broken.append(f"{path.relative_to(ROOT)} -> {target}")
    assert checked > 15
    assert not broken


def test_decision_records_are_numbered_complete_and_listed() -> None:
    folder = ROOT / "docs" / "decisions"
    records = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert [name[:4] for name in records] == [f"{number:04}" for number in range(1, len(records) + 1)]
    listed = set(LINK.findall((folder / "README.md").read_text(encoding="utf-8")))
    assert listed.issuperset(records)
    for name in records:
        text = (folder / name).read_text(encoding="utf-8")
        missing = [part for part in ("## Context", "## Decision", "## Consequences") if part not in text]
        assert not missing, (name, missing)
    mentioned = {
        number
        for path in text_files()
        if path.suffix in {".md", ".py"}
        for number in re.findall(r"(?:docs/decisions/|\brecord )(\d{4})\b", path.read_text(encoding="utf-8"))
    }
    assert mentioned <= {name[:4] for name in records}


def test_middleware_is_pure_asgi() -> None:
    """Under this class a client's disconnect never reaches the watch, and the engine goes on (decision 0006)."""
    name = "BaseHTTP" + "Middleware"
    users = [
        str(path.relative_to(ROOT))
        for path in modules("app", "ingestion", "workers")
        for node in ast.walk(syntax(path))
        if (isinstance(node, ast.Name) and node.id == name)
        or (isinstance(node, ast.Attribute) and node.attr == name)
        or (isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names))
        or (isinstance(node, ast.Call) and _is_http_middleware(node))
    ]
    assert not users


def _is_http_middleware(call: ast.Call) -> bool:
    """`@app.middleware("http")` wraps the function in the same class."""
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr == "middleware"
        and any(isinstance(argument, ast.Constant) and argument.value == "http" for argument in call.args)
    )


def test_only_settings_reads_the_environment() -> None:
    """Except for the local stack, which hands a child its environment."""
    readers = sorted(
        {
            str(path.relative_to(ROOT))
            for path in modules("app", "ingestion", "workers")
            for node in ast.walk(syntax(path))
            if isinstance(node, ast.Attribute)
            and node.attr in {"environ", "getenv"}
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
        }
    )
    assert not [name for name in readers if name != "app/settings.py" and not name.startswith("app/local/")]
