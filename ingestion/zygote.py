"""The process behind `Sandbox`: imports the parsers once, then forks one confined child per request.

Single-threaded by design (a fork copies no other thread's locks). Ends when its socket closes or its parent dies.
"""

import argparse
import gc
import importlib
import os
import resource
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NoReturn, Protocol

import orjson

from ingestion import confinement
from ingestion.canonical import ParsedPage, Probe
from ingestion.confinement import ProcessLimits
from ingestion.errors import ParseError

FRAME: Final = struct.Struct(">I")
_READ_BYTES: Final = 1024 * 1024
_MEMORY_SHARE: Final = 0.4
_EXIT_UNCONFINED: Final = 77


class Readers(Protocol):
    """What the module named by --readers offers."""

    def warm(self, kind_hint: str, models_dir: Path) -> None: ...
    def probe(self, path: Path, filename: str, password: str | None) -> Probe: ...
    def parse(self, path: Path, filename: str, first: int, last: int, password: str | None) -> list[ParsedPage]: ...


def send_frame(sock: socket.socket, payload: bytes) -> None:
    """Write one length-prefixed message."""
    sock.sendall(FRAME.pack(len(payload)))
    sock.sendall(payload)


def receive_frame(sock: socket.socket) -> bytes | None:
    """Read one message; None when the other end closed."""
    head = _receive(sock, FRAME.size)
    return None if head is None else _receive(sock, FRAME.unpack(head)[0])


def _receive(sock: socket.socket, size_bytes: int) -> bytes | None:
    data = bytearray(size_bytes)
    view = memoryview(data)
    filled = 0
    while filled < size_bytes:
        got = sock.recv_into(view[filled:])
        if got == 0:
            return None
        filled += got
    return bytes(data)


def main(arguments: list[str]) -> int:
    """Serve requests until the socket closes."""
    parser = argparse.ArgumentParser(prog="ingestion.sandbox")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--readers", default="ingestion.readers")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--die-with-parent", action="store_true")
    parser.add_argument("--limits", required=True)
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Not SIGKILL: the scratch folder may hold decrypted pieces of documents, and goes first.
    signal.signal(signal.SIGTERM, _leave)
    if options.die_with_parent:
        confinement.die_with_parent(options.parent, signal.SIGTERM)
    sock = socket.socket(fileno=options.fd)
    limits = ProcessLimits(**orjson.loads(options.limits))
    zygote = _Zygote(sock, importlib.import_module(options.readers), options.models, options.scratch, limits)
    try:
        zygote.serve()
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent went away: nothing is left to answer
    finally:
        shutil.rmtree(options.scratch, ignore_errors=True)
    return 0


def _leave(number: int, frame: object) -> NoReturn:
    del number, frame
    raise SystemExit(0)


class _Zygote:
    def __init__(
        self, sock: socket.socket, readers: Any, models_dir: Path, scratch: Path, limits: ProcessLimits
    ) -> None:
        self._sock = sock
        self._readers: Readers = readers
        self._models_dir = models_dir
        self._scratch = scratch
        self._limits = limits
        self._readable = [*confinement.library_paths(), *([models_dir] if models_dir.exists() else [])]
        self._warm: set[str] = set()

    def serve(self) -> None:
        """Say hello with what confines the children, then answer until the socket closes."""
        network = confinement.leave_network()
        hello = {"network_namespace": network, **self._try_confinement()}
        send_frame(self._sock, orjson.dumps(hello))
        while (frame := receive_frame(self._sock)) is not None:
            request = orjson.loads(frame)
            hint = request["hint"]
            if hint not in self._warm:
                self._readers.warm(hint, self._models_dir)
                self._warm.add(hint)
                # Objects that live for ever stay out of the collector, so children do not copy their pages.
                gc.collect()
                gc.freeze()
            send_frame(self._sock, self._answer(request))

    def _try_confinement(self) -> dict[str, bool]:
        """Apply the measures in a throwaway child and report which of them hold."""
        child = os.fork()
        if child == 0:
            landlock = confinement.restrict_files(self._readable, [self._scratch])
            seccomp = confinement.filter_system_calls()
            os._exit(int(landlock) | int(seccomp) << 1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        held = max(status, 0)
        self._landlock, self._seccomp = bool(held & 1), bool(held & 2)
        return {"landlock": self._landlock, "seccomp": self._seccomp}

    def _answer(self, request: dict[str, Any]) -> bytes:
        self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)  # cleaners of /tmp take idle folders
        folder = Path(tempfile.mkdtemp(dir=self._scratch))
        reading, writing = os.pipe()
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            os.close(reading)
            self._run_child(request, folder, writing, parent)
        os.close(writing)
        try:
            os.setpgid(child, child)
        except OSError:
            pass  # the child has done it, or is gone
        try:
            return self._await(child, reading, float(request["wall_s"]))
        finally:
            os.close(reading)
            shutil.rmtree(folder, ignore_errors=True)

    def _await(self, child: int, reading: int, wall_s: float) -> bytes:
        deadline = time.monotonic() + wall_s
        poller = select.poll()
        poller.register(reading, select.POLLIN)
        poller.register(self._sock.fileno(), select.POLLIN)
        answer = bytearray()
        verdict: ParseError | None = None
        ended = False
        while not ended and verdict is None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                verdict = ParseError("timeout", "Reading took too long and was stopped.", limit_s=wall_s)
                break
            for descriptor, _ in poller.poll(left_s * 1000):
                if descriptor != reading:
                    # No request is sent while one runs: this is the parent closing its end.
                    _kill(child)
                    os.waitpid(child, 0)
                    raise BrokenPipeError
                data = os.read(reading, _READ_BYTES)
                ended = not data
                answer += data
                if len(answer) > self._limits.output_bytes:
                    verdict = ParseError("resource_limit", "The document unpacks to too much text.", resource="output")
        if verdict is not None:
            _kill(child)
        _, status, usage = os.wait4(child, 0)
        _kill(child)  # whatever the child left in its process group
        if verdict is None:
            verdict = self._post_mortem(os.waitstatus_to_exitcode(status), usage, bool(answer))
        return bytes(answer) if verdict is None else orjson.dumps({"error": verdict.to_json()})

    def _post_mortem(self, code: int, usage: resource.struct_rusage, answered: bool) -> ParseError | None:
        if code == 0 and answered:
            return None
        if code == -signal.SIGXCPU:
            return ParseError("resource_limit", "Reading took too much processor time.", resource="cpu")
        if code == -signal.SIGXFSZ:
            return ParseError("resource_limit", "Reading wrote too much to disk.", resource="disk")
        peak_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        if peak_bytes > _MEMORY_SHARE * self._limits.memory_bytes:
            return ParseError("resource_limit", "Reading took too much memory.", resource="memory")
        # SIGKILL that is not ours came from outside (the kernel out of memory, an operator): another try may pass.
        outside = code == -signal.SIGKILL
        cause = {"signal": -code} if code < 0 else {"exit_code": code}
        return ParseError("crashed", "The parser stopped in the middle of the file.", retryable=outside, **cause)

    def _run_child(self, request: dict[str, Any], folder: Path, writing: int, parent: int) -> NoReturn:
        """Confine, read, write the answer to the pipe, leave without any clean-up of the zygote's state."""
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setpgid(0, 0)
            confinement.die_with_parent(parent)
            self._sock.close()
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            os.chdir(folder)
            tempfile.tempdir = str(folder)
            confinement.limit_resources(self._limits, int(request["cpu_s"]))
            path = Path(request["path"])
            held = not self._landlock or confinement.restrict_files([*self._readable, path], [folder])
            held = (not self._seccomp or confinement.filter_system_calls()) and held
            if not held:
                os._exit(_EXIT_UNCONFINED)
            payload = self._read(request, path)
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(payload)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the child must never return into the zygote's loop
            os._exit(1)

    def _read(self, request: dict[str, Any], path: Path) -> bytes:
        try:
            if request["op"] == "probe":
                return _dump(self._readers.probe(path, request["filename"], request["password"]).to_json())
            pages = self._readers.parse(
                path, request["filename"], request["first"], request["last"], request["password"]
            )
            return _dump([page.to_json() for page in pages])
        except ParseError as error:
            return orjson.dumps({"error": error.to_json()})
        except MemoryError:
            swollen = ParseError("resource_limit", "Reading took too much memory.", resource="memory")
            return orjson.dumps({"error": swollen.to_json()})
        except RecursionError:
            return orjson.dumps({"error": ParseError("corrupt", "The file nests too deeply to be read.").to_json()})
        except OSError as error:
            full = error.errno == 27  # EFBIG: over RLIMIT_FSIZE
            code, message = ("resource_limit", "wrote too much to disk") if full else ("corrupt", "failed on the file")
            return orjson.dumps({"error": ParseError(code, f"Reading {message}.").to_json()})
        except Exception as error:  # noqa: BLE001 - parsers raise anything; its text may quote the document
            failure = ParseError("corrupt", "The file is damaged: it cannot be read.", reason=type(error).__name__)
            return orjson.dumps({"error": failure.to_json()})


def _dump(value: Any) -> bytes:
    return orjson.dumps({"ok": value})


def _kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # gone already
