"""The project's own files, found without git so that an unpacked archive is checked too."""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (".ci", "app", "benchmarks", "docs", "frontend", "infra", "ingestion", "samples", "tests", "tools", "workers")
TEXT = frozenset({"", ".cfg", ".css", ".html", ".ini", ".js", ".json", ".mako", ".md", ".py", ".sh", ".sql", ".toml",
                  ".ts", ".tsx", ".txt", ".yaml", ".yml"})  # fmt: skip
SKIPPED = frozenset({"__pycache__", "node_modules", ".venv"})


def files() -> Iterator[Path]:
    """Every file of the project below ROOT: top level and FOLDERS, without caches and environments."""
    yield from (path for path in sorted(ROOT.iterdir()) if path.is_file())
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and not SKIPPED.intersection(path.relative_to(ROOT).parts):
                yield path


def text_files() -> Iterator[Path]:
    """Files that people wrote: by suffix, without test documents."""
    data = ROOT / "tests" / "data"
    return (path for path in files() if path.suffix in TEXT and data not in path.parents)


def modules(*folders: str) -> Iterator[Path]:
    """Python modules below the given top-level folders."""
    return (path for path in files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in folders)


def syntax(path: Path) -> ast.Module:
    """The parsed module."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def load_tool(name: str) -> ModuleType:
    """The script tools/NAME.py as a module."""
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
