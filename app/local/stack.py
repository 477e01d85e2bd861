"""One local stack's life: run it here, run it detached, stop it. The detached supervisor's entry point."""

import argparse
import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from app.core.errors import FullreadError, InvalidInputError, UnavailableError
from app.local import postgres, processes
from app.local.health import http_ok
from app.local.state import Home, Lock, identity, open_home, owner_pid
from app.local.supervisor import LEFTOVER_GRACE_S, Notice, Report, Supervisor
from app.local.table import common_environment, plan
from app.settings import SettingsError, load


def supervise(data_dir: Path, *, api_port: int | None = None, gguf: Path | None = None, report: Report) -> int:
    """Run the whole local stack on `data_dir` until a signal; the exit status.

    Raises ConflictError when it is running already or `api_port` is taken, InvalidInputError for wrong settings.
    """
    home = open_home(data_dir)
    with Lock(home):
        try:
            settings = load()
        except SettingsError as error:
            raise InvalidInputError("settings", str(error)) from error
        chosen = plan(home, settings, os.environ, api_port=api_port, gguf=gguf)
        stack = Supervisor(home, chosen, ready=http_ok(chosen.api_port, "/readyz"), report=report)
        return asyncio.run(stack.run())


def detach(home: Home, *, api_port: int | None, gguf: Path | None) -> subprocess.Popen[bytes]:
    """Start the supervisor as a process of its own that outlives this one; it writes log/supervisor.log."""
    command = [sys.executable, "-m", "app.local.stack", "--data", str(home.root)]
    command += ["--port", str(api_port)] if api_port is not None else []
    command += ["--gguf", str(gguf)] if gguf is not None else []
    log_path = home.log_file("supervisor")
    processes.rotate(log_path)
    with log_path.open("ab") as log:
        log_path.chmod(0o600)
        return subprocess.Popen(
            command,
            env=common_environment(home, os.environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def halt(home: Home, timeout_s: float = 60.0) -> int | None:
    """Stop the stack that runs on this directory and wait for it; its pid, or None when none ran.

    What a killed supervisor left behind is ended too. Raises UnavailableError when it does not stop in time.
    """
    pid = owner_pid(home)
    if pid is None:
        with Lock(home):
            left = processes.marked(identity(home)) + postgres.running(home)
            asyncio.run(processes.end(left, first=signal.SIGINT, grace_s=LEFTOVER_GRACE_S))
            home.state_file.unlink(missing_ok=True)
        return None
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while owner_pid(home) == pid:
        if time.monotonic() > deadline:
            raise UnavailableError("stop_timeout", f"The supervisor (pid {pid}) did not stop in {timeout_s:.0f} s.")
        time.sleep(0.1)
    return pid


def main(arguments: Sequence[str] | None = None) -> int:
    """The detached supervisor's entry point; its lines go to its log."""
    parser = argparse.ArgumentParser(prog="python -m app.local.stack")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--port", type=int)
    parser.add_argument("--gguf", type=Path)
    options = parser.parse_args(arguments)

    def report(notice: Notice) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        sys.stdout.write(f"{at} {notice.kind} {notice.service or '-'} {notice.text}\n")
        sys.stdout.flush()

    try:
        return supervise(options.data, api_port=options.port, gguf=options.gguf, report=report)
    except FullreadError as error:
        sys.stderr.write(f"{error.message}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
