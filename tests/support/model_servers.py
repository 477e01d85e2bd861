"""The local model servers as processes of a test, and where the packaged models are."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from app.local import models
from app.local.ports import choose

KEY = "a-key-of-the-tests-0123456789abcdef"
START_TIMEOUT_S = 120.0


def models_dir() -> Path:
    """FULLREAD_MODELS_DIR or the default folder."""
    return Path(os.environ.get("FULLREAD_MODELS_DIR") or models.default_dir()).expanduser()


def missing(folder: str) -> str | None:
    """Why a model cannot be used here; None when it can."""
    problems = [one for one in models.verify(models_dir(), full=False) if one.startswith(folder)]
    return f"run `fullread models pull`: {problems[0]}" if problems else None


@contextmanager
def running(module: str, scratch: Path, arguments: Sequence[str] = ()) -> Iterator[str]:
    """Start `python -m app.local.MODULE` on a free port and give its address."""
    key_file = scratch / "key"
    key_file.write_text(KEY, encoding="utf-8")
    port = choose([module], {}, api_port=None)[module]
    command = [sys.executable, "-m", f"app.local.{module}", "--models", str(models_dir()), "--port", str(port)]
    process = subprocess.Popen([*command, "--api-key-file", str(key_file), *arguments])
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(process, url)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=20)


def _wait(process: "subprocess.Popen[bytes]", url: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode} while starting")
        try:
            if httpx.get(f"{url}/health", timeout=2).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.05)
    raise TimeoutError(f"not healthy after {START_TIMEOUT_S} s")
