"""`fullread models pull|verify|list`: the packaged models on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.output import CommandError

commands = typer.Typer(no_args_is_help=True, help="The packaged models: fetched once, then no network is needed.")

ModelsOption = Annotated[
    Path | None,
    typer.Option("--models", metavar="DIR", envvar="FULLREAD_MODELS_DIR", help="The models folder."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, for scripts.")]


@commands.command("pull")
def pull(
    models_dir: ModelsOption = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="DIR", exists=True, file_okay=False, help="A folder with the carrier wheels (no network)."
        ),
    ] = None,
) -> None:
    """Fetch what is missing, check it against the pinned digests, unpack and convert it. Quick when all is there."""
    from app.local import models

    folder = _folder(models_dir)
    try:
        found = models.pull(folder, source=source, report=typer.echo)
    except models.ModelsError as error:
        raise CommandError("models_incomplete", str(error)) from error
    size = sum(model.size_bytes for model in found)
    typer.echo(f"{len(found)} models are complete in {folder} ({size / 1e6:.0f} MB).")


@commands.command("verify")
def verify(models_dir: ModelsOption = None, as_json: JsonOption = False) -> None:
    """Read every file and compare its SHA-256. Exit 1 when something is missing or wrong."""
    import json

    from app.local import models

    folder = _folder(models_dir)
    problems = models.verify(folder)
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "complete": not problems, "problems": problems}))
    elif problems:
        for problem in problems:
            typer.echo(problem)
        typer.echo("Run `fullread models pull` to repair it.")
    else:
        typer.echo(f"Every model in {folder} is complete.")
    raise typer.Exit(1 if problems else 0)


@commands.command("list")
def show(models_dir: ModelsOption = None, as_json: JsonOption = False) -> None:
    """Show the packaged models with their licences, sizes and where they come from."""
    import json

    from app.local import models

    folder = _folder(models_dir)
    there = {model.folder: model for model in models.installed(folder)}
    rows = [
        {
            "folder": carrier.folder,
            "purpose": carrier.purpose,
            "licence": carrier.licence,
            "package": f"{carrier.package}=={carrier.version}",
            "sha256": carrier.sha256,
            "installed": carrier.folder in there,
            "size_bytes": there[carrier.folder].size_bytes if carrier.folder in there else None,
        }
        for carrier in models.CARRIERS
    ]
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "models": rows}, indent=1))
        return
    for row in rows:
        size = row["size_bytes"]
        state = f"{size / 1e6:.0f} MB" if isinstance(size, int) else "not there"
        typer.echo(f"{row['folder']:<8} {state:>10}  {row['licence']:<10}  {row['purpose']}  ({row['package']})")


def _folder(given: Path | None) -> Path:
    from app.local import models

    return (given or models.default_dir()).expanduser().resolve()
