"""The commands of `collections`, and how the other commands find the one that is meant."""

from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

import typer

from app.cli.options import CollectionOption, DataOption, JsonOption, KeyOption, UrlOption, YesOption
from app.cli.output import CommandError, agree, count, print_json, say, table, when, wrong_use

if TYPE_CHECKING:
    from app.cli.client import Api

commands = typer.Typer(
    help="Sets of documents with their own rights: list, create, delete, status, grants.",
    epilog="\n\n".join(
        (
            "**Examples**",
            "`fullread collections`: all that you see",
            "`fullread collections status contracts`: documents by state, pages, chunks",
            "`fullread collections grant contracts ana@example.org editor`",
        )
    ),
)
NameArgument = Annotated[str, typer.Argument(metavar="COLLECTION", help="Name or id.")]
UserArgument = Annotated[str, typer.Argument(metavar="USER", help="E-mail address or id.")]


def is_id(text: str) -> bool:
    """Whether the text is a UUID."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def named(api: "Api", name: str) -> dict[str, Any] | None:
    """The collection of this name (any case) or id; None when the caller sees none."""
    found = next(api.items("/collections", name=name), None)
    if found is None and is_id(name):
        try:
            return api.get(f"/collections/{name}")
        except CommandError as failure:
            if failure.status != 404:
                raise
    return found


def choose(api: "Api", name: str | None) -> dict[str, Any]:
    """The collection that is meant: the named one, or the only one. Raises CommandError."""
    if name is not None:
        found = named(api, name)
        if found is None:
            raise CommandError("collection_not_found", f"There is no collection '{name}': see `fullread collections`.")
        return found
    seen = list(api.items("/collections"))
    if not seen:
        raise CommandError(
            "no_collections", "There is no collection yet: `fullread ingest FOLDER --collection NAME` makes one."
        )
    if len(seen) > 1:
        names = ", ".join(str(each["name"]) for each in seen[:8])
        raise wrong_use(f"Say which collection with --collection NAME: {names}{', ...' if len(seen) > 8 else ''}.")
    return seen[0]


def ensure(api: "Api", name: str) -> dict[str, Any]:
    """The collection of this name, made when there is none."""
    found = named(api, name)
    if found is not None:
        return found
    try:
        return api.send("POST", "/collections", {"name": name})
    except CommandError as failure:
        # Somebody else made it at the same moment, or our own first request arrived and its answer did not.
        found = named(api, name) if failure.status == 409 else None
        if found is None:
            raise
        return found


def user_id(api: "Api", user: str) -> str:
    """The id of a user by e-mail address or id. Raises CommandError. An address needs the right to see users."""
    if is_id(user):
        return user
    for each in api.items("/users"):
        if str(each["email"]).casefold() == user.casefold():
            return str(each["id"])
    raise CommandError("user_not_found", f"There is no user '{user}': see `fullread users`.")


@commands.callback(invoke_without_command=True)
def list_or_command(
    context: typer.Context,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Sets of documents with their own rights: list, create, delete, status, grants."""
    if context.invoked_subcommand is None:
        list_collections(data, url, api_key, as_json)


@commands.command("list")
def list_collections(
    data: DataOption = None, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """All collections that you see, oldest first."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        found = list(api.items("/collections"))
    if as_json:
        print_json({"collections": found})
    elif not found:
        say("No collections yet. `fullread ingest FOLDER --collection NAME` makes one.")
    else:
        rows = [(c["name"], c["role"], when(c["created_at"]), c["id"], c["description"]) for c in found]
        table(("name", "your role", "created (UTC)", "id", "description"), rows)


@commands.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the new collection.")],
    description: Annotated[str, typer.Option(help="What it holds.")] = "",
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a collection. (`ingest` makes a missing one by itself.)"""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        made = api.send("POST", "/collections", {"name": name, "description": description})
    if as_json:
        print_json(made)
    else:
        say(f"Collection {made['name']} made ({made['id']}).")


@commands.command()
def delete(
    collection: NameArgument,
    yes: YesOption = False,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a collection with everything in it."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        found = choose(api, collection)
        held = sum(api.get(f"/collections/{found['id']}/status")["documents"].values())
        agree(f"Delete the collection {found['name']} with {count(held, 'document')}?", yes=yes)
        job = api.send("DELETE", f"/collections/{found['id']}")
    if as_json:
        print_json({"collection_id": found["id"], **job})
    else:
        say(f"Collection {found['name']} is gone; its bytes are erased within seconds.")


@commands.command()
def status(
    collection: Annotated[str | None, typer.Argument(metavar="COLLECTION", help="Name or id.")] = None,
    name: CollectionOption = None,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Documents by state, pages and chunks of a collection."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        found = choose(api, collection or name)
        facts = api.get(f"/collections/{found['id']}/status")
    if as_json:
        print_json({"collection": found["name"], "collection_id": found["id"], **facts})
        return
    say(f"{found['name']}: {count(sum(facts['documents'].values()), 'document')}")
    for state, number in sorted(facts["documents"].items()):
        say(f"  {number:>7,} {state}")
    say(f"  {facts['pages_indexed']:>7,} of {count(facts['pages_total'], 'page')} indexed")
    say(f"  {facts['chunks']:>7,} chunks")


@commands.command()
def grants(
    collection: NameArgument,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Who has which role on a collection (owners and administrators see all collections without a grant)."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        found = choose(api, collection)
        given = list(api.items(f"/collections/{found['id']}/grants"))
    if as_json:
        print_json({"grants": given})
    elif not given:
        say(f"Nobody has a grant on {found['name']}; owners and administrators see it without one.")
    else:
        table(("user", "role", "id"), [(g["email"], g["role"], g["user_id"]) for g in given])


@commands.command()
def grant(
    collection: NameArgument,
    user: UserArgument,
    role: Annotated[str, typer.Argument(help="viewer (reads and asks), reviewer, or editor (adds and deletes).")],
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Give a user a role on a collection; it replaces the one before."""
    from app.cli.session import connect

    if role not in ("viewer", "reviewer", "editor"):
        raise wrong_use(f"The role is viewer, reviewer or editor, not '{role}'.")
    with connect(data, url, api_key) as api:
        found = choose(api, collection)
        api.send("PUT", f"/collections/{found['id']}/grants/{user_id(api, user)}", {"role": role})
    say(f"{user} is {role} of {found['name']}.")


@commands.command()
def revoke(
    collection: NameArgument,
    user: UserArgument,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
) -> None:
    """Take a user's role on a collection away: effective with the next request."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        found = choose(api, collection)
        api.send("DELETE", f"/collections/{found['id']}/grants/{user_id(api, user)}")
    say(f"{user} has no grant on {found['name']} any more.")
