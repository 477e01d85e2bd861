"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

_WHICH = "Which server (else the stack of ./fullread-data, or the last login)"


class FromEnvironment(str):
    """An option's value that came from a variable: an option on the command line goes before it."""

    __slots__ = ()


def _mark(context: typer.Context, parameter: typer.CallbackParam, value: str | None) -> str | None:
    source = context.get_parameter_source(parameter.name or "")
    return FromEnvironment(value) if value and source is not None and source.name == "ENVIRONMENT" else value


DataOption = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="Data directory of a local stack.", rich_help_panel=_WHICH),
]
UrlOption = Annotated[
    str | None,
    typer.Option("--url", envvar="FULLREAD_URL", callback=_mark, help="Address of a server.", rich_help_panel=_WHICH),
]
KeyOption = Annotated[
    str | None,
    typer.Option(
        "--api-key",
        envvar="FULLREAD_API_KEY",
        callback=_mark,
        help="API key for it.",
        show_default=False,
        rich_help_panel=_WHICH,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, for scripts.")]
CollectionOption = Annotated[
    str | None,
    typer.Option("--collection", "-c", metavar="NAME", help="Name or id; not needed when there is only one."),
]
LimitOption = Annotated[int, typer.Option(min=1, max=1000, help="How many.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
