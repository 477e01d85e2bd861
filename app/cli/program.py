"""The program: which commands there are, and how every failure becomes a sentence and an exit status."""

import io
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.exceptions import Abort, TyperException

from app import __version__
from app.cli import admin, answers, ask, collections, demo, documents, ingest, jobs, models, stack
from app.cli.output import EXIT_INTERRUPTED, CommandError, report, wrong_use

_EPILOG = "\n\n".join(
    (
        "**Start**",
        "`fullread up --detach`: everything on this machine, data in ./fullread-data",
        "`fullread ingest contracts/ -c contracts`: a folder into a collection, made when missing",
        '`fullread ask "What is the liability cap?" -c contracts`: an answer with proved quotes',
        "`fullread demo`: all of this with sample files",
        "**Exit status** 0 done, 1 failure, 2 wrong use, 3 some files are not indexed, 4 nothing found",
    )
)

program = typer.Typer(
    name="fullread",
    help="Answers over large private document sets, with proof of what was read.",
    epilog=_EPILOG,
    rich_markup_mode="markdown",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


@program.callback(invoke_without_command=True)
def _program(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"fullread {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


_LOCAL = "On this machine"
_USE = "Documents and answers"
_ADMIN = "People and access"

program.command(rich_help_panel=_LOCAL)(stack.up)
program.command(rich_help_panel=_LOCAL)(stack.down)
program.command(rich_help_panel=_LOCAL)(stack.status)
program.command(rich_help_panel=_LOCAL, epilog=demo.EPILOG)(demo.demo)
program.add_typer(models.commands, name="models", rich_help_panel=_LOCAL)
program.command(rich_help_panel=_LOCAL)(admin.migrate)

program.command(rich_help_panel=_USE, epilog=ingest.EPILOG)(ingest.ingest)
program.command(rich_help_panel=_USE, epilog=ask.ASK_EPILOG)(ask.ask)
program.command(rich_help_panel=_USE, epilog=ask.SEARCH_EPILOG)(ask.search)
program.add_typer(answers.commands, name="answers", rich_help_panel=_USE)
program.add_typer(documents.commands, name="documents", rich_help_panel=_USE)
program.command(rich_help_panel=_USE, epilog=documents.DELETE_EPILOG)(documents.delete)
program.command(rich_help_panel=_USE)(documents.retry)
program.command(rich_help_panel=_USE)(documents.cancel)
program.add_typer(collections.commands, name="collections", rich_help_panel=_USE)
program.add_typer(jobs.commands, name="jobs", rich_help_panel=_USE)

program.command(rich_help_panel=_ADMIN)(admin.login)
program.command(rich_help_panel=_ADMIN)(admin.logout)
program.command(rich_help_panel=_ADMIN)(admin.whoami)
program.add_typer(admin.users, name="users", rich_help_panel=_ADMIN)
program.add_typer(admin.keys, name="keys", rich_help_panel=_ADMIN)


def run(arguments: Sequence[str]) -> int:
    """Run one command; the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 must not end the command
    as_json = "--json" in arguments
    try:
        status = program(args=list(arguments), prog_name="fullread", standalone_mode=False)
        sys.stdout.flush()
    except CommandError as failure:
        return report(failure, as_json=as_json)
    except BrokenPipeError:
        sys.stdout = None  # nobody reads: the interpreter must not flush at its end
        return 1
    except Abort:
        sys.stderr.write("Stopped.\n")
        return EXIT_INTERRUPTED
    except TyperException as error:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "fullread"
        said = error.format_message().rstrip(".") or "Name one of the commands"
        return report(wrong_use(f"{said}. See `{command} --help`."), as_json=as_json)
    return status if isinstance(status, int) else 0
