"""Parsers behind a process wall: a file that crashes, hangs or swells costs one typed error, never the caller.

Works inside daemonic Celery children, where multiprocessing does not. `python -m ingestion.sandbox` is the other side.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from pathlib import Path, PurePath
from types import TracebackType
from typing import Any, Final, Self

import orjson

from ingestion.canonical import ParsedPage, Probe
from ingestion.confinement import ProcessLimits
from ingestion.errors import ParseError
from ingestion.fingerprint import PARSER_FINGERPRINT
from ingestion.zygote import receive_frame, send_frame

__all__ = ["PARSER_FINGERPRINT", "RANGE_PAGES", "Probe", "ProcessLimits", "Sandbox"]

RANGE_PAGES: Final = 50
_START_S: Final = 120.0
_GRACE_S: Final = 30.0
_SCRATCH: Final = "fullread-parse-"
_SWEEP_AFTER_S: Final = 3600.0
# Codes of a range that died in one page: it is halved until that page stands alone.
_DEADLY: Final = frozenset({"crashed", "timeout", "resource_limit"})
_MAX_LOST_PAGES: Final = 5


class Sandbox:
    """One zygote process, started at the first call and again when it died. Calls from several threads queue up."""

    def __init__(
        self, models_dir: Path, limits: ProcessLimits | None = None, *, readers: str = "ingestion.readers"
    ) -> None:
        self._models_dir = models_dir
        self._limits = limits or ProcessLimits()
        self._readers = readers
        self._lock = threading.Lock()
        self._closed = False
        self._link: _Link | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def confinement(self) -> dict[str, bool]:
        """Which measures the kernel grants: network_namespace, seccomp, landlock. Starts the zygote."""
        with self._lock:
            return dict(self._started().hello)

    @property
    def pid(self) -> int | None:
        """Process id of the zygote, None before the first call."""
        return None if self._link is None else self._link.process.pid

    def close(self) -> None:
        """Stop the zygote and whatever it runs. A call in another thread raises ParseError crashed (retryable)."""
        self._closed = True
        link = self._link
        if link is not None:
            link.end()

    def probe(self, path: Path, filename: str, password: str | None = None) -> Probe:
        """Kind, page count, metadata and facts of a file. Raises ParseError."""
        request = self._request("probe", path, filename, password)
        return Probe.from_json(self._call(request))

    def parse(
        self, path: Path, filename: str, first_page: int, last_page: int, password: str | None = None
    ) -> list[ParsedPage]:
        """Pages first..last (1-based, inclusive).

        A PDF range that kills its parser is halved until the guilty page stands alone; that page comes back in state
        `failed` with the code. Raises ParseError when nothing can be read at all.
        """
        request = self._request("parse", path, filename, password)
        return self._parse(request, first_page, last_page, _Losses())

    def _parse(self, request: dict[str, Any], first: int, last: int, losses: "_Losses") -> list[ParsedPage]:
        share = min(1.0, (last - first + 1) / RANGE_PAGES)
        # Half of a range does not need all of the range's time; a lone page still gets a fair part.
        cpu_s = max(5, round(self._limits.cpu_s * (0.35 + 0.65 * share)))
        wall_s = max(5.0, self._limits.wall_s * (0.35 + 0.65 * share))
        if request["hint"] != "pdf":
            cpu_s, wall_s = self._limits.cpu_s, self._limits.wall_s
        wall_s = min(wall_s, self._limits.wall_s)
        try:
            pages = self._call({**request, "first": first, "last": last, "cpu_s": cpu_s, "wall_s": wall_s})
            return [ParsedPage.from_json(page) for page in pages]
        except ParseError as error:
            deadly = error.code in _DEADLY or "reason" in error.facts
            if not deadly or request["hint"] != "pdf" or self._closed:
                raise
            if first == last or losses.pages >= _MAX_LOST_PAGES:
                losses.pages += last - first + 1
                return [_lost_page(number, error) for number in range(first, last + 1)]
        middle = (first + last) // 2
        left = self._parse(request, first, middle, losses)
        return left + self._parse(request, middle + 1, last, losses)

    def _request(self, op: str, path: Path, filename: str, password: str | None) -> dict[str, Any]:
        path = path.resolve(strict=True)
        with path.open("rb") as file:
            is_pdf = b"%PDF-" in file.read(1024)
        suffix = PurePath(filename).suffix.lower().lstrip(".")
        return {
            "op": op,
            "path": str(path),
            "filename": PurePath(filename).name,
            "password": password,
            "hint": "pdf" if is_pdf else _HINTS.get(suffix, "txt"),
            "first": 1,
            "last": 1,
            "cpu_s": self._limits.cpu_s,
            "wall_s": self._limits.wall_s,
        }

    def _call(self, request: dict[str, Any]) -> Any:
        payload = orjson.dumps(request)
        with self._lock:
            answer = self._exchange(payload)
            if answer is None:
                answer = self._exchange(payload)  # the zygote had died: a fresh one, once
            if answer is None:
                raise ParseError("crashed", "The parser process could not be kept alive.", retryable=True)
        value = orjson.loads(answer)
        if "error" in value:
            raise ParseError.from_json(value["error"])
        return value["ok"]

    def _exchange(self, payload: bytes) -> bytes | None:
        link = self._started()
        try:
            link.sock.settimeout(self._limits.wall_s + _GRACE_S)
            send_frame(link.sock, payload)
            answer = receive_frame(link.sock)
        except OSError:  # also the timeout: a zygote that does not answer is as good as dead
            answer = None
        if answer is None:
            link.end()
            self._link = None
        return answer

    def _started(self) -> "_Link":
        if self._closed:
            raise ParseError("crashed", "The parser was stopped.", retryable=True)
        link = self._link
        if link is not None and link.owner_pid != os.getpid():
            link.forget()  # forked since: that zygote belongs to the parent
            link = None
        if link is None or link.process.poll() is not None:
            if link is not None:
                link.end()
            self._link = link = _Link(self._models_dir, self._limits, self._readers)
        return link


class _Losses:
    """Pages given up so far in one call, so that a file full of bad pages ends."""

    def __init__(self) -> None:
        self.pages = 0


class _Link:
    """The running zygote and our end of its socket."""

    def __init__(self, models_dir: Path, limits: ProcessLimits, readers: str) -> None:
        self.owner_pid = os.getpid()
        _sweep()
        scratch = tempfile.mkdtemp(prefix=f"{_SCRATCH}{self.owner_pid}-")
        self.sock, theirs = socket.socketpair()
        command = [sys.executable, "-m", "ingestion.sandbox", "--fd", str(theirs.fileno())]
        command += ["--models", str(models_dir.resolve()), "--scratch", scratch, "--readers", readers]
        command += ["--parent", str(self.owner_pid)]
        command += ["--limits", orjson.dumps(_limits_json(limits)).decode()]
        # The kernel sends the death signal when the *thread* that forked ends, so only the main thread may ask for it.
        if threading.current_thread() is threading.main_thread():
            command.append("--die-with-parent")
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # parsers print; what they print may quote the document
                env=_ENVIRONMENT,
                cwd=Path(__file__).resolve().parent.parent,
                pass_fds=(theirs.fileno(),),
                # A group of its own, but no session of its own: between sessions Linux ignores niceness (autogroup).
                process_group=0,
            )
        finally:
            theirs.close()
        self._finalizer = weakref.finalize(self, _end, self.process, self.sock, scratch, self.owner_pid)
        self.sock.settimeout(_START_S)
        try:
            hello = receive_frame(self.sock)
        except OSError:
            hello = None
        if hello is None:
            self.end()
            raise ParseError("crashed", "The parser process does not start.", retryable=True)
        self.hello: dict[str, bool] = orjson.loads(hello)

    def end(self) -> None:
        """Kill the zygote; its child dies with it."""
        self._finalizer()

    def forget(self) -> None:
        """Drop our copy after a fork without touching the parent's process."""
        self._finalizer.detach()
        self.sock.close()
        self.process.returncode = 0  # not our child: Popen must not wait for it


def _end(process: "subprocess.Popen[bytes]", sock: socket.socket, scratch: str, owner_pid: int) -> None:
    if os.getpid() != owner_pid:
        return
    try:
        sock.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits on it, which close alone does not
    except OSError:
        pass
    sock.close()
    if process.poll() is None:
        process.send_signal(signal.SIGKILL)
    process.wait()
    shutil.rmtree(scratch, ignore_errors=True)


_HINTS: Final = {
    "docx": "docx",
    "docm": "docx",
    "dotx": "docx",
    "xlsx": "xlsx",
    "xlsm": "xlsx",
    "xltx": "xlsx",
    "html": "html",
    "htm": "html",
    "xhtml": "html",
    "md": "md",
    "markdown": "md",
    "csv": "csv",
    "tsv": "csv",
    "eml": "eml",
}
# The only variables a parser sees. Unstructured reports usage and prints an advertisement unless told not to.
_ENVIRONMENT: Final = {
    "LANG": "C.UTF-8",
    "SCARF_NO_ANALYTICS": "true",
    "DO_NOT_TRACK": "true",
    "UNSTRUCTURED_DISABLE_NOTICE": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def _sweep() -> None:
    """Remove the scratch folders of processes that were killed together with their zygote."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_SCRATCH}*-*"):
        pid = folder.name.removeprefix(_SCRATCH).split("-")[0]
        try:
            if folder.stat().st_uid != os.geteuid() or time.time() - folder.stat().st_mtime < _SWEEP_AFTER_S:
                continue
            os.kill(int(pid), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except (OSError, ValueError):
            continue  # another user's process, or gone in between


def _limits_json(limits: ProcessLimits) -> dict[str, float]:
    return {name: getattr(limits, name) for name in ProcessLimits.__slots__}


def _lost_page(number: int, error: ParseError) -> ParsedPage:
    return ParsedPage(number, None, None, None, 0, "", (), (), "failed", error.code, error.message, "")


if __name__ == "__main__":
    from ingestion.zygote import main

    sys.exit(main(sys.argv[1:]))
