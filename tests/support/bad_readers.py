"""Readers that misbehave, for the sandbox tests. The file's name says how."""

import ctypes
import os
import socket
import tempfile
import time
from pathlib import Path

from ingestion.canonical import ParsedPage, Probe
from ingestion.errors import ParseError


def warm(kind_hint: str, models_dir: Path) -> None:
    """Nothing to load."""
    del kind_hint, models_dir


def probe(path: Path, filename: str, password: str | None) -> Probe:
    """Do what the name says and report what happened as facts."""
    facts: dict[str, object] = {}
    match filename:
        case "segv":
            ctypes.string_at(0)
        case "memory":
            facts["size"] = len(bytearray(3 * 1024**3))
        case "native-memory":
            libc = ctypes.CDLL(None)
            libc.malloc.restype = ctypes.c_void_p
            address = libc.malloc(ctypes.c_size_t(3 * 1024**3))
            facts["refused"] = address is None
        case "spin":
            while True:
                pass
        case "sleep":
            time.sleep(600)
        case "recursion":
            probe(path, filename, password)
        case "value-error":
            raise ValueError("words of the document")
        case "parse-error":
            raise ParseError("needs_password", "Locked.", attempts=3)
        case "big":
            facts["text"] = "x" * 30_000_000
        case "too-big":
            facts["text"] = "x" * 60_000_000
        case "disk":
            with Path(tempfile.mkdtemp(), "file").open("wb") as file:
                file.writelines(bytes(1024 * 1024) for _ in range(1000))
        case "look":
            facts = _look(path)
    return Probe("txt", "text/plain", 1, facts=facts)


def _look(path: Path) -> dict[str, object]:
    """What a parser child can reach."""
    facts: dict[str, object] = {
        "environment": sorted(os.environ),
        "cwd": str(Path.cwd()),
        "tmp": tempfile.gettempdir(),
        "input": path.read_text(),
        "pid": os.getpid(),
        "group": os.getpgid(0),
    }
    Path(tempfile.gettempdir(), "scratch").write_text("own folder")
    for name, attempt in (
        ("socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM).connect(("127.0.0.1", 9))),
        ("fork", _fork),
        ("exec", lambda: os.execv("/bin/true", ["true"])),
        ("kill", lambda: os.kill(os.getppid(), 0)),
        ("read_neighbour", lambda: (path.parent / "neighbour").read_text()),
        ("write_input", lambda: path.write_text("changed")),
    ):
        try:
            attempt()
            facts[name] = "allowed"
        except OSError as error:
            facts[name] = type(error).__name__
    return facts


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)
    os.wait()


def parse(path: Path, filename: str, first: int, last: int, password: str | None) -> list[ParsedPage]:
    """Pages of one word; the name lists page numbers that kill the process: `bad-7-9`."""
    del path, password
    for number in map(int, filename.split("-")[1:]):
        if first <= number <= last:
            ctypes.string_at(0)
    return [ParsedPage(number, None, 1.0, 1.0, 0, f"page{number}", (), (), "ok") for number in range(first, last + 1)]
