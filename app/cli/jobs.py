"""The commands of `jobs`: what the server works on in the background."""

import itertools
from typing import Annotated, Any

import typer

from app.cli.options import DataOption, JsonOption, KeyOption, LimitOption, UrlOption
from app.cli.output import line, print_json, say, table, when, why

Json = dict[str, Any]

commands = typer.Typer(
    help="Work in the background: ingestion, analyses that were queued; list, show, cancel.",
    epilog="\n\n".join(
        (
            "**Examples**",
            "`fullread jobs --state queued`: what waits",
            "`fullread jobs show ID`: how far one is, and what happened to it",
            "`fullread jobs cancel ID`: stop it; documents are stopped with `fullread cancel`",
        )
    ),
)
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The job's id.")]
StateOption = Annotated[
    str | None, typer.Option(help="Only jobs in this state: queued, running, succeeded, failed, cancelled.")
]


@commands.callback(invoke_without_command=True)
def list_or_command(
    context: typer.Context,
    state: StateOption = None,
    limit: LimitOption = 20,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Work in the background: ingestion, analyses that were queued; list, show, cancel."""
    if context.invoked_subcommand is None:
        list_jobs(state, limit, data, url, api_key, as_json)


@commands.command("list")
def list_jobs(
    state: StateOption = None,
    limit: LimitOption = 20,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """The last jobs, newest first."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        found = list(itertools.islice(api.items("/jobs", state=state), limit))
    if as_json:
        print_json({"jobs": found})
    elif not found:
        say("No such jobs.")
    else:
        rows = [(j["state"], j["kind"], when(j["created_at"]), _progress(j), why(j), j["id"]) for j in found]
        table(("state", "kind", "made (UTC)", "progress", "why", "id"), rows)


@commands.command()
def show(
    job: IdArgument,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """One job: state, progress, what happened to it."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        found = api.get(f"/jobs/{job}")
        events = api.get(f"/jobs/{job}/events")["items"]
    if as_json:
        print_json({**found, "events": events})
        return
    facts = (
        ("job", found["id"]),
        ("kind", found["kind"]),
        ("state", found["state"]),
        ("about", found["subject_id"]),
        ("progress", _progress(found)),
        ("attempt", found["attempt"]),
        ("why", why(found)),
    )
    for name, value in facts:
        if value not in (None, ""):
            say(f"{name:<9} {line(value)}")
    for event in events:
        details = ", ".join(f"{key} {value}" for key, value in (event["detail"] or {}).items())
        say(f"  {when(event['at'])}  {line(event['event'])}{f': {line(details)}' if details else ''}")


@commands.command()
def cancel(
    job: IdArgument,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel a queued job, or ask a running one to stop."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        found = api.send("POST", f"/jobs/{job}/cancel")
    if as_json:
        print_json(found)
    elif found["state"] == "cancelled":
        say("The job is cancelled.")
    else:
        say(f"The job is asked to stop; it is {line(found['state'])}.")


def _progress(job: Json) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in (job["progress"] or {}).items())
