"""Who may import whom, and what a start loads."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.tree import ROOT

API_NEVER_LOADS = ("unstructured", "llama_index", "langchain", "torch", "spacy", "pandas", "onnxruntime", "pypdfium2")
VERSION_NEVER_LOADS = (
    *API_NEVER_LOADS, "alembic", "celery", "fastapi", "httpx", "numpy", "openai", "psycopg", "pydantic",
    "qdrant_client", "qdrant_edge", "sqlalchemy", "uvicorn", "xllamacpp",
)  # fmt: skip


def loaded_after(code: str) -> set[str]:
    """Names of the top-level modules that a fresh interpreter has loaded after running `code`."""
    program = f"{code}\nimport sys\nsys.stderr.write('LOADED ' + ' '.join({{n.split('.')[0] for n in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stderr.rsplit("LOADED ", 1)[1].split())


def test_import_contracts_hold() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [str(tool), "--no-logo", "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_api_loads_no_parser_and_no_model_runtime() -> None:
    loaded = loaded_after("import app.api, app.main")
    assert "fastapi" in loaded
    assert loaded.isdisjoint(API_NEVER_LOADS), sorted(loaded.intersection(API_NEVER_LOADS))


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_version_and_help_load_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import sys\n"
        f"sys.argv = ['fullread', *{arguments!r}]\n"
        "from app.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
    )
    loaded = loaded_after(code)
    assert "app" in loaded
    assert loaded.isdisjoint(VERSION_NEVER_LOADS), sorted(loaded.intersection(VERSION_NEVER_LOADS))
