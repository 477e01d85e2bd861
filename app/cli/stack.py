"""The commands that start, stop and show the local stack: `up`, `down`, `status`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import subprocess

    from rich.console import Console

    from app.local.state import Home, StackState
    from app.local.supervisor import Notice

DataOption = Annotated[Path, typer.Option("--data", help="Where everything of the local stack lies.")]
DEFAULT_DATA = Path("fullread-data")


def up(
    data: DataOption = DEFAULT_DATA,
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, help="The web address's port.")] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when everything is ready; stop it by `down`.")
    ] = False,
    gguf: Annotated[
        Path | None, typer.Option("--gguf", exists=True, dir_okay=False, help="Another model for the packaged engine.")
    ] = None,
) -> None:
    """Start everything that has no URL in the environment, and stay until Ctrl-C."""
    from rich.console import Console

    from app.core.errors import FullreadError

    console = Console(highlight=False)
    try:
        code = _up_detached(console, data, port, gguf) if detach else _up_here(console, data, port, gguf)
    except FullreadError as error:
        _complain(error.message)
        code = 1
    raise typer.Exit(code)


def down(data: DataOption = DEFAULT_DATA) -> None:
    """Stop the local stack that runs on a data directory, and wait until it has stopped."""
    from app.core.errors import FullreadError
    from app.local.stack import halt
    from app.local.state import Home, open_home

    if not Home(data.expanduser().resolve()).lock_file.exists():
        typer.echo(f"Nothing runs on {data}.")
        return
    try:
        home = open_home(data)
        pid = halt(home)
    except FullreadError as error:
        _complain(error.message)
        raise typer.Exit(1) from error
    typer.echo(f"Stopped (pid {pid})." if pid is not None else f"Nothing runs on {home.root}.")


def status(
    data: DataOption = DEFAULT_DATA,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object for scripts.")] = False,
) -> None:
    """Show what runs where. Exit 0 when the stack is ready, 1 when it is not or does not run."""
    import json
    from dataclasses import asdict

    from app.local.state import Home, StackState, owner_pid

    home = Home(data.expanduser().resolve())
    pid = owner_pid(home)
    state = StackState.read(home)
    ready = pid is not None and state is not None and state.phase == "ready"
    if as_json:
        facts = asdict(state) if state is not None else {"data_dir": str(home.root), "services": []}
        typer.echo(json.dumps({**facts, "running": pid is not None, "ready": ready, "pid": pid}, indent=1))
    elif pid is None or state is None:
        typer.echo(f"Nothing runs on {home.root}.")
        if state is not None and state.failure:
            typer.echo(f"The last start failed: {state.failure}")
    else:
        from rich.console import Console

        _show(Console(highlight=False), home, state)
        typer.echo(f"{'Ready' if ready else state.phase.capitalize()} (pid {pid}).")
    raise typer.Exit(0 if ready else 1)


def _up_here(console: "Console", data: Path, port: int | None, gguf: Path | None) -> int:
    from app.local.stack import supervise
    from app.local.state import StackState, open_home

    home = open_home(data)

    def report(notice: "Notice") -> None:
        _say(console, notice)
        if notice.kind == "ready" and (state := StackState.read(home)) is not None:
            _show(console, home, state, first_start=True)
            console.print("Ctrl-C stops everything.")

    return supervise(data, api_port=port, gguf=gguf, report=report)


def _up_detached(console: "Console", data: Path, port: int | None, gguf: Path | None) -> int:
    import time

    from app.local.stack import detach
    from app.local.state import Lock, StackState, open_home

    home = open_home(data)
    with Lock(home):
        pass  # refuses at once, with the owner's pid, when another supervisor runs
    log_path = home.log_file("supervisor")
    heard = log_path.stat().st_size if log_path.exists() else 0
    child = detach(home, api_port=port, gguf=gguf)
    try:
        while child.poll() is None:
            state = StackState.read(home)
            if state is not None and state.pid == child.pid and state.phase == "ready":
                _show(console, home, state, first_start=True)
                console.print(
                    f"Runs in the background (pid {child.pid}). `fullread down --data {data}` stops it.",
                    markup=False,
                    soft_wrap=True,
                )
                return 0
            time.sleep(0.1)
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        return 130
    _complain(_why(home, child, log_path, heard))
    return 1


def _why(home: "Home", child: "subprocess.Popen[bytes]", log_path: Path, heard: int) -> str:
    from app.local.state import StackState

    state = StackState.read(home)
    if state is not None and state.pid == child.pid and state.failure:
        return state.failure
    with log_path.open("rb") as file:
        file.seek(heard if heard <= log_path.stat().st_size else 0)
        return file.read().decode(errors="replace").strip() or f"The supervisor ended with status {child.returncode}."


def _say(console: "Console", notice: "Notice") -> None:
    if notice.kind == "failed":
        _complain(notice.text)
    if notice.kind in ("starting", "ready", "failed"):
        return  # the table says it better
    style = {"crashed": "bold red", "leftover": "yellow", "healthy": "green"}.get(notice.kind, "dim")
    words = {"healthy": "started"}.get(notice.kind, notice.kind)
    console.print(f"[{style}]{words:>9}[/] {notice.service:<15} ", end="")
    console.print(notice.text, markup=False, soft_wrap=True)


def _show(console: "Console", home: "Home", state: "StackState", *, first_start: bool = False) -> None:
    from rich.table import Table

    from app.local.state import read_admin

    table = Table(title="Fullread", title_justify="left")
    for heading in ("service", "where", "state", "pid"):
        table.add_column(heading, no_wrap=heading != "where", overflow="fold")
    for line in state.services:
        shown = line.state if not line.restarts else f"{line.state}, restarts {line.restarts}"
        table.add_row(line.name, line.url or "-", shown, str(line.pid or ""))
    console.print(table)
    console.print(f"Address   {state.api_url}", markup=False, soft_wrap=True)
    console.print(f"Data      {home.root}", markup=False, soft_wrap=True)
    console.print(f"Logs      {home.log}", markup=False, soft_wrap=True)
    shown_before = home.run / "admin-shown"
    kept = read_admin(home)
    if first_start and kept is not None and not shown_before.exists():
        console.print("\nThe first administrator (shown once; kept in admin.json of the data directory):")
        for name, key in (("E-mail", "email"), ("Password", "password"), ("API key", "api_key")):
            console.print(f"{name:<9} {kept[key]}", markup=False, soft_wrap=True)
        shown_before.touch(mode=0o600)


def _complain(message: str) -> None:
    sys.stderr.write(f"{message}\n")
