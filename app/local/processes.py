"""Child processes of the local stack: start, mark, log, find again, end. Knows nothing of what they serve."""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import psutil

STACK_VARIABLE = "FULLREAD_STACK"
SERVICE_VARIABLE = "FULLREAD_SERVICE"
LOG_LIMIT_BYTES = 10 * 1024 * 1024
_PR_SET_PDEATHSIG = 1
_POLL_S = 0.02
_CLOCK_TICK_S = 0.05


def rotate(log_path: Path, limit_bytes: int = LOG_LIMIT_BYTES) -> None:
    """Keep one older log beside a fresh one when the log is over the limit."""
    if log_path.exists() and log_path.stat().st_size > limit_bytes:
        log_path.replace(log_path.with_name(log_path.name + ".1"))


def tail(log_path: Path, lines: int = 20) -> str:
    """The last lines of a log, for a person."""
    try:
        with log_path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 64 * 1024))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def launch(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log_path: Path,
    cwd: Path,
    nice: int = 0,
    uid: int | None = None,
    stdout_path: Path | None = None,
    death_signal: signal.Signals = signal.SIGTERM,
) -> subprocess.Popen[bytes]:
    """Start a child in a process group of its own, so that a terminal's Ctrl-C reaches the supervisor alone.

    Not in a session of its own: Linux schedules sessions against each other (autogroup), and `nice` would mean nothing.
    It gets `death_signal` when the supervisor dies. `uid` also becomes the group. Call it from a process with one
    thread only: code runs between fork and exec. Raises OSError when the program cannot be started.
    """
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    with contextlib.ExitStack() as stack:
        log = os.open(log_path, append, 0o600)
        stack.callback(os.close, log)
        out = log
        if stdout_path is not None:
            out = os.open(stdout_path, append | os.O_TRUNC, 0o600)
            stack.callback(os.close, out)
        return subprocess.Popen(
            list(command),
            env=dict(environment),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=log,
            process_group=0,
            preexec_fn=_child_setup(os.getpid(), nice, death_signal),  # noqa: PLW1509 one thread, see above
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
        )


def _child_setup(parent_pid: int, nice: int, death_signal: signal.Signals) -> Callable[[], None]:
    prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None

    def setup() -> None:
        if nice:
            os.nice(nice)
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
            if os.getppid() != parent_pid:
                os._exit(1)  # the supervisor died before the signal was set

    return setup


def created(pid: int) -> float | None:
    """The process's start time, which with the pid identifies it; None when it is gone."""
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None


def marked(stack_id: str, service: str | None = None) -> list[psutil.Process]:
    """Running processes that carry this stack's mark (and this service's name), never the caller itself.

    Children of a child inherit the mark, so worker pools and parser processes are found without their parent.
    """
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            variables = process.environ()
        except (psutil.Error, OSError, ValueError):
            continue
        if variables.get(STACK_VARIABLE) == stack_id and service in (None, variables.get(SERVICE_VARIABLE)):
            found.append(process)
    return found


def recorded(pid: int | None, created_at: float | None) -> list[psutil.Process]:
    """The process with this pid if it is still the same one: a reused pid has another start time."""
    if pid is None or created_at is None:
        return []
    try:
        process = psutil.Process(pid)
        return [process] if abs(process.create_time() - created_at) < _CLOCK_TICK_S else []
    except psutil.Error:
        return []


async def end(processes: Iterable[psutil.Process], *, first: signal.Signals, grace_s: float) -> list[int]:
    """Ask with `first`, kill after `grace_s`, wait until all are gone; returns the pids that it ended."""
    alive = list({process.pid: process for process in processes}.values())
    ended = [process.pid for process in alive]
    for process in alive:
        _send(process, first)
    alive = await _gone(alive, grace_s)
    for process in alive:
        _send(process, signal.SIGKILL)
    await _gone(alive, 5.0)
    return ended


def _send(process: psutil.Process, signal_number: signal.Signals) -> None:
    # psutil checks the start time first, so a reused pid is never hit.
    with contextlib.suppress(psutil.Error):
        process.send_signal(signal_number)


async def _gone(processes: list[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    deadline = time.monotonic() + timeout_s
    alive = processes
    while alive := [process for process in alive if _runs(process)]:
        if time.monotonic() >= deadline:
            break
        await asyncio.sleep(_POLL_S)
    return alive


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


async def run_to_end(process: subprocess.Popen[bytes], timeout_s: float) -> int:
    """Wait for a short program without blocking the loop and without a thread; kills it when cancelled or late."""
    deadline = time.monotonic() + timeout_s
    try:
        while (code := process.poll()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError
            await asyncio.sleep(_POLL_S)
        return code
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
