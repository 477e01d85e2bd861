"""What routes depend on: the process's services, the caller, and a unit of work that ends before the answer leaves."""

import re
from base64 import b64decode
from collections.abc import Iterator
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Header, Query, Request
from starlette.datastructures import Headers

from app.api import problems
from app.bootstrap import Services
from app.core.db import UnitOfWork
from app.core.errors import InvalidInputError, UnauthenticatedError
from app.identity import accounts, secrets
from app.identity.permissions import Principal

_SECRET_PARAMETERS = ("api_key", "apikey", "token", "key", "access_token")
_SECRET_PREFIXES = (f"{secrets.API_KEY_PREFIX}_", f"{secrets.SESSION_PREFIX}_")
_REVISION = re.compile(r"[0-9]{1,18}", re.ASCII)


def get_services(request: Request) -> Services:
    """The services that `app.main` made."""
    made = request.app.state.services
    assert isinstance(made, Services)
    return made


ServicesDep = Annotated[Services, Depends(get_services)]


def bearer_token(headers: Headers) -> str:
    """The token of `Authorization: Bearer`. Raises UnauthenticatedError when there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise UnauthenticatedError("no_credentials", "Send an API key in the header 'Authorization: Bearer ...'.")
    return token.strip()


def refuse_secrets_in_address(request: Request) -> None:
    """Raise InvalidInputError for a token in the query, or a parameter that is named like one."""
    if any(
        name.lower() in _SECRET_PARAMETERS or value.startswith(_SECRET_PREFIXES)
        for name, value in request.query_params.multi_items()
    ):
        raise InvalidInputError(
            "secret_in_url", "Send the API key in the header 'Authorization: Bearer ...', never in the address."
        )


def get_principal(request: Request, services: ServicesDep) -> Principal:
    """The caller, from `Authorization: Bearer` (API key or login session). A secret in the address is refused."""
    refuse_secrets_in_address(request)
    return accounts.authenticate(services.database, bearer_token(request.headers), request_id=request.state.request_id)


PrincipalDep = Annotated[Principal, Depends(get_principal)]


def get_reporting_principal(request: Request, services: ServicesDep) -> Principal:
    """The caller of a route for reporting tools, which know Basic: user = id of an API key, password = the key."""
    request.state.challenge = problems.BASIC_CHALLENGE
    refuse_secrets_in_address(request)
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        token = bearer_token(request.headers)
        return accounts.authenticate(services.database, token, request_id=request.state.request_id)
    try:
        key_id, _, password = b64decode(given.strip(), validate=True).decode().partition(":")
    except ValueError:
        key_id, password = "", ""
    return accounts.authenticate_key(services.database, key_id, password, request_id=request.state.request_id)


ReportingDep = Annotated[Principal, Depends(get_reporting_principal)]


def get_unit(services: ServicesDep, actor: PrincipalDep) -> Iterator[UnitOfWork]:
    """A transaction in the caller's tenant for the length of the route."""
    with services.database.tenant(actor.tenant_id) as uow:
        yield uow


#: scope="function": the commit happens before the response leaves, so a failing commit is an error response.
UnitDep = Annotated[UnitOfWork, Depends(get_unit, scope="function")]

LimitQuery = Annotated[int, Query(ge=1, le=200, description="rows of the page")]
CursorQuery = Annotated[UUID | None, Query(description="`next` of the page before")]
#: NUL is no text for Postgres: refused here, or the query crashes.
TEXT_PATTERN = r"^[^\x00]*$"
#: The largest value of the database's integer and bigint columns.
INTEGER_MAX, BIGINT_MAX = 2**31 - 1, 2**63 - 1


IdempotencyKey = Annotated[
    str | None, Header(description="the same key and body again is done once and answered with the same body")
]


def etag_revision(if_match: Annotated[str | None, Header()] = None) -> int | None:
    """The revision in `If-Match`, None when the header is absent. Raises InvalidInputError for another form."""
    if if_match is None:
        return None
    value = if_match.strip().removeprefix("W/").strip('"')
    if not _REVISION.fullmatch(value):
        raise InvalidInputError("bad_etag", "If-Match must be the ETag of this object.")
    return int(value)
