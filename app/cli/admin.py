"""Sign-in, users, API keys, and the migration of a database of one's own."""

import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from app.cli.options import DataOption, JsonOption, KeyOption, UrlOption, YesOption
from app.cli.output import CommandError, agree, note, print_json, say, table, when, wrong_use

users = typer.Typer(
    help="Users of the organisation (administrators): list, add, change.",
    epilog="\n\n".join(
        (
            "**Examples**",
            "`fullread users add ana@example.org --role editor`: asks for a password",
            "`fullread users change ana@example.org --disable`",
        )
    ),
)
keys = typer.Typer(
    help="API keys: list, create, revoke.",
    epilog="\n\n".join(
        (
            "**Examples**",
            "`fullread keys create nightly --scope read --scope write --days 90`: shows the key once",
            "`fullread keys revoke ID`: dead with the next request",
        )
    ),
)
_ROLES = ("owner", "admin", "editor", "reviewer", "viewer")
_SCOPES = ("read", "write", "admin")
PasswordStdin = Annotated[bool, typer.Option("--password-stdin", help="Read the password from standard input.")]


def _password(question: str, *, from_stdin: bool, confirm: bool = False) -> str:
    """A password from standard input or asked without echo; never from the command line, which others can see."""
    if from_stdin:
        return sys.stdin.readline().rstrip("\n")
    if not sys.stdin.isatty():
        raise wrong_use("There is no terminal to ask for the password: give it with --password-stdin.")
    return str(typer.prompt(question, hide_input=True, confirmation_prompt=confirm, err=True))


def login(
    email: Annotated[str | None, typer.Option(help="E-mail address; asked for when missing.")] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Id of the organisation, when the address is known in several.")
    ] = None,
    password_stdin: PasswordStdin = False,
    data: DataOption = None,
    url: UrlOption = None,
) -> None:
    """Sign in with e-mail and password; the session (12 hours) is kept for the commands that follow.

    It is stored with 0600 in your configuration folder. Scripts use an API key instead: `fullread keys create`.
    """
    from app.cli import session

    target = session.find(data, url, None)
    if email is None:
        if not sys.stdin.isatty():
            raise wrong_use("There is no terminal to ask for the address: give it with --email.")
        email = str(typer.prompt("E-mail", err=True))
    password = _password("Password", from_stdin=password_stdin)
    body = {"email": email, "password": password, **({"tenant": tenant} if tenant else {})}
    with session.client(session.Target(target.url, "", target.server, target.data)) as api:
        made = api.send("POST", "/login", body)
    path = session.remember(target, email=email, token=made["token"], expires_at=made["expires_at"])
    say(f"Signed in at {target.url} as {email} until {when(made['expires_at'])} UTC (kept in {path}).")


def logout(data: DataOption = None, url: UrlOption = None) -> None:
    """End the stored session, here and on the server."""
    from app.cli import session

    target = session.find(data, url, None)
    token = session.login_token(target.server)
    if token:
        with session.client(session.Target(target.url, token, target.server, target.data)) as api:
            try:
                api.send("POST", "/logout")
            except CommandError as failure:
                if failure.status != 401:  # it had ended already
                    session.forget(target)
                    raise
    said = "Signed out of" if session.forget(target) else "There was no login at"
    say(f"{said} {target.url}.")


def whoami(
    data: DataOption = None, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Which server this is, who you are there and what you may do."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        me = api.get("/me")
        address = api.url
    if as_json:
        print_json({"url": address, **me})
        return
    scopes = "" if me["scopes"] is None else f", by an API key with the scopes {', '.join(me['scopes'])}"
    say(f"{me['email']}, {me['role']}{scopes}, at {address}.")


@users.callback(invoke_without_command=True)
def users_or_command(
    context: typer.Context,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Users of the organisation (administrators): list, add, change."""
    if context.invoked_subcommand is None:
        list_users(data, url, api_key, as_json)


@users.command("list")
def list_users(
    data: DataOption = None, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """All users."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        found = list(api.items("/users"))
    if as_json:
        print_json({"users": found})
    else:
        rows = [
            (u["email"], u["role"], "disabled" if u["disabled_at"] else "active", when(u["created_at"]), u["id"])
            for u in found
        ]
        table(("user", "role", "state", "added (UTC)", "id"), rows)


@users.command()
def add(
    email: Annotated[str, typer.Argument(help="E-mail address.")],
    role: Annotated[str, typer.Option(help=f"One of {', '.join(_ROLES)}.")] = "viewer",
    name: Annotated[str, typer.Option(help="Name as shown.")] = "",
    password_stdin: PasswordStdin = False,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a user. Viewers, reviewers and editors see a collection only by a grant: `fullread collections grant`."""
    from app.cli.session import connect

    _one_of(role, _ROLES, "role")
    password = _password("Password for the new user", from_stdin=password_stdin, confirm=True)
    with connect(data, url, api_key) as api:
        made = api.send("POST", "/users", {"email": email, "password": password, "role": role, "display_name": name})
    if as_json:
        print_json(made)
    else:
        say(f"{made['email']} added as {made['role']} ({made['id']}).")


@users.command()
def change(
    user: Annotated[str, typer.Argument(metavar="USER", help="E-mail address or id.")],
    role: Annotated[str | None, typer.Option(help=f"One of {', '.join(_ROLES)}.")] = None,
    disable: Annotated[
        bool | None, typer.Option("--disable/--enable", help="End all access at once, or give it back.")
    ] = None,
    new_password: Annotated[bool, typer.Option("--password", help="Ask for a new password.")] = False,
    password_stdin: PasswordStdin = False,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a user's role, password or access."""
    from app.cli.collections import user_id
    from app.cli.session import connect

    body: dict[str, Any] = {}
    if role is not None:
        body["role"] = _one_of(role, _ROLES, "role")
    if disable is not None:
        body["disabled"] = disable
    if new_password or password_stdin:
        body["password"] = _password("New password", from_stdin=password_stdin, confirm=True)
    if not body:
        raise wrong_use("Say what to change: --role, --disable, --enable or --password.")
    with connect(data, url, api_key) as api:
        changed = api.send("PATCH", f"/users/{user_id(api, user)}", body)
    if as_json:
        print_json(changed)
    else:
        say(f"{changed['email']}: {changed['role']}, {'disabled' if changed['disabled_at'] else 'active'}.")


@keys.callback(invoke_without_command=True)
def keys_or_command(
    context: typer.Context,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """API keys: list, create, revoke."""
    if context.invoked_subcommand is None:
        list_keys(data, url, api_key, as_json)


@keys.command("list")
def list_keys(
    data: DataOption = None, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Your API keys (administrators: all), without their secrets."""
    from app.cli.session import connect

    with connect(data, url, api_key) as api:
        found = list(api.items("/api-keys"))
    if as_json:
        print_json({"api_keys": found})
        return
    rows = [
        (
            k["name"],
            f"…{k['hint']}",
            ",".join(k["scopes"]),
            "revoked" if k["revoked_at"] else "active",
            when(k["expires_at"]),
            when(k["last_used_at"]),
            k["id"],
        )
        for k in found
    ]
    table(("name", "ends with", "scopes", "state", "expires (UTC)", "last used (UTC)", "id"), rows)


@keys.command()
def create(
    name: Annotated[str, typer.Argument(help="What it is for.")],
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="read, write or admin; may be repeated; read when missing.")
    ] = None,
    days: Annotated[int | None, typer.Option(min=1, help="Days until it expires; never when missing.")] = None,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make an API key of yours. It is shown this once: keep it."""
    from app.cli.session import connect

    scopes = [_one_of(each, _SCOPES, "scope") for each in scope or ["read"]]
    expires_at = (datetime.now(UTC) + timedelta(days=days)).isoformat() if days else None
    with connect(data, url, api_key) as api:
        made = api.send("POST", "/api-keys", {"name": name, "scopes": scopes, "expires_at": expires_at})
    if as_json:
        print_json(made)
    else:
        say(made["token"])
        note(f"Keep it: it is not shown again. Id {made['id']}, scopes {', '.join(scopes)}.")


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="The key's id, from `fullread keys`.")],
    yes: YesOption = False,
    data: DataOption = None,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Revoke an API key: dead with the next request."""
    from app.cli.session import connect

    agree(f"Revoke the key {key}?", yes=yes)
    with connect(data, url, api_key) as api:
        gone = api.send("DELETE", f"/api-keys/{key}")
    if as_json:
        print_json(gone)
    else:
        say(f"Key {gone['name']} (…{gone['hint']}) is revoked.")


def migrate(
    email: Annotated[str, typer.Option(help="E-mail address of the first administrator.")] = "admin@localhost",
    tenant: Annotated[str, typer.Option(help="Name of the first organisation.")] = "main",
    as_json: JsonOption = False,
) -> None:
    """Bring a database of your own to this release, and make the first administrator when there is none.

    `fullread up` does it by itself. Needs DATABASE_OWNER_URL and the variables of the servers.
    """
    from app import bootstrap
    from app.settings import SettingsError

    arguments = ["--email", email, "--tenant", tenant, *(["--json"] if as_json else [])]
    try:
        status = bootstrap.main(arguments)
    except SettingsError as error:
        raise wrong_use(str(error)) from error
    raise typer.Exit(status)


def _one_of(value: str, allowed: tuple[str, ...], what: str) -> str:
    if value not in allowed:
        raise wrong_use(f"The {what} is one of {', '.join(allowed)}, not '{value}'.")
    return value
