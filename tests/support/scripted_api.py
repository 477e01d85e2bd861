"""A server that speaks the shapes of the HTTP API under a real uvicorn, with a script: states, refusals, cut lines."""

import asyncio
import hashlib
import json
import socket
import threading
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

Json = dict[str, Any]
TOKEN = "test-key"
AT = "2026-01-15T09:00:00+00:00"
HOLD: tuple[str, Json] = ("hold", {})
CUT: tuple[str, Json] = ("cut", {})


def problem(status: int, code: str, detail: str, **facts: Any) -> JSONResponse:
    body = {"type": f"urn:fullread:problem:{code}", "title": "Refused", "status": status, "code": code,
            "detail": detail, "request_id": "r-1", **facts}  # fmt: skip
    return JSONResponse(body, status_code=status, media_type="application/problem+json")


@dataclass
class ScriptedApi:
    """The server's memory and its script. Tests set the script before, and look at the memory after."""

    url: str = ""
    #: Answers to give before serving again: a status, or 0 for an answer that is cut off.
    refusals: list[int] = field(default_factory=list)
    #: Per document name: what its state is, one step further with each look; the last one stays.
    states: dict[str, list[Json]] = field(default_factory=dict)
    #: What a question gets: the events, as (kind, data). HOLD keeps the line open and says nothing more,
    #: CUT ends it in the middle.
    events: list[tuple[str, Json]] = field(default_factory=list)
    answers: dict[str, Json] = field(default_factory=dict)
    jobs: dict[str, Json] = field(default_factory=dict)
    hits: list[Json] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    collections: dict[str, Json] = field(default_factory=dict)
    documents: dict[str, Json] = field(default_factory=dict)
    users: dict[str, Json] = field(default_factory=dict)
    keys: dict[str, Json] = field(default_factory=dict)
    grants: dict[str, str] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=lambda: {TOKEN})
    requests: list[str] = field(default_factory=list)
    bodies: list[Json] = field(default_factory=list)
    looks: dict[str, int] = field(default_factory=dict)

    def collection(self, name: str) -> Json:
        made: Json = {"id": str(uuid.uuid4()), "name": name, "description": "", "role": "owner", "revision": 1,
                "created_at": AT}  # fmt: skip
        self.collections[made["id"]] = made
        return made

    def document(self, collection_id: str, name: str, content: bytes = b"x", **facts: Any) -> Json:
        made: Json = {
            "id": str(uuid.uuid4()), "collection_id": collection_id, "name": name, "state": "indexed", "code": None,
            "message": None, "pages_total": 1, "pages_parsed": 1, "pages_indexed": 1, "chunks_total": 1,
            "chunks_indexed": 1, "media_type": "text/plain", "size_bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(), "version_id": str(uuid.uuid4()), "version_number": 1,
            "active_version_id": None, "language": "en", "title": None, "facts": {}, "created_at": AT,
            "updated_at": AT, **facts,
        }  # fmt: skip
        self.documents[made["id"]] = made
        return made

    def names(self) -> list[str]:
        return [document["name"] for document in self.documents.values()]

    def seen(self, document: Json) -> Json:
        """The document as it is at this look; the script goes one step on."""
        script = self.states.get(document["name"])
        if script:
            step = self.looks.get(document["id"], 0)
            document.update(script[min(step, len(script) - 1)])
            self.looks[document["id"]] = step + 1
        return document


class _Door:
    """What stands before the routes: refusals, the token, the list of requests."""

    def __init__(self, app: Starlette, api: ScriptedApi) -> None:
        self.app, self.api = app, api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        self.api.requests.append(f"{request.method} {request.url.path}")
        if self.api.refusals:
            status = self.api.refusals.pop(0)
            if status == 0:
                await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
                return  # uvicorn closes the connection of an answer without its end
            await problem(status, "refused", "A service restarts.")(scope, receive, send)
            return
        open_to_all = request.url.path in ("/readyz", "/healthz", "/api/v1/login")
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not open_to_all and token not in self.api.tokens:
            await problem(401, "bad_token", "This API key or login is not valid (any more).")(scope, receive, send)
            return
        await self.app(scope, receive, send)


def _routes(api: ScriptedApi) -> list[Route]:  # a table of small functions
    def list_of(rows: list[Json], request: Request) -> JSONResponse:
        limit, after = int(request.query_params.get("limit", 100)), request.query_params.get("cursor")
        at = next((i + 1 for i, row in enumerate(rows) if row["id"] == after), 0)
        page = rows[at : at + limit]
        return JSONResponse({"items": page, "next": page[-1]["id"] if len(page) == limit else None})

    async def collections(request: Request) -> Response:
        if request.method == "POST":
            wanted = (await request.json())["name"]
            if any(c["name"].casefold() == wanted.casefold() for c in api.collections.values()):
                return problem(409, "name_taken", "There is a collection of this name.")
            return JSONResponse(api.collection(wanted), status_code=201)
        name = request.query_params.get("name")
        found = [c for c in api.collections.values() if name is None or c["name"].casefold() == name.casefold()]
        return list_of(found, request)

    async def collection(request: Request) -> Response:
        found = api.collections.get(request.path_params["id"])
        if found is None:
            return problem(404, "not_found", "There is no such object.")
        if request.method == "DELETE":
            del api.collections[found["id"]]
            return JSONResponse({"job_id": str(uuid.uuid4())}, status_code=202)
        return JSONResponse(found)

    async def status(request: Request) -> Response:
        held = [d for d in api.documents.values() if d["collection_id"] == request.path_params["id"]]
        states = {state: sum(d["state"] == state for d in held) for state in {d["state"] for d in held}}
        return JSONResponse({"documents": states, "pages_total": 3, "pages_indexed": 2, "chunks": 5})

    async def grants(request: Request) -> Response:
        user = request.path_params.get("user")
        if user is None:
            rows = [{"user_id": u, "email": api.users[u]["email"], "role": r} for u, r in api.grants.items()]
            return JSONResponse({"items": rows, "next": None})
        if request.method == "PUT":
            api.grants[user] = (await request.json())["role"]
        else:
            api.grants.pop(user)
        return Response(status_code=204)

    async def documents(request: Request) -> Response:
        held = [d for d in api.documents.values() if d["collection_id"] == request.path_params["id"]]
        if request.method == "GET":
            name, state = request.query_params.get("name"), request.query_params.get("state")
            return list_of([d for d in held if name in (None, d["name"]) and state in (None, d["state"])], request)
        async with request.form() as form:
            file, name = form["file"], str(form["name"])
            assert isinstance(file, UploadFile)
            content = await file.read()
        if name.startswith("refused"):
            return problem(422, "bad_name", "A document name holds no control characters.")
        digest = hashlib.sha256(content).hexdigest()
        same = next((d for d in held if d["sha256"] == digest), None)
        if same is not None:
            return JSONResponse({"document": same, "job_id": None, "duplicate_of": same["id"]})
        started = {"state": "received", "pages_total": 0, "pages_indexed": 0} if name in api.states else {}
        made = api.document(request.path_params["id"], name, content, **started)
        answer = {"document": made, "job_id": str(uuid.uuid4()), "duplicate_of": None}
        return JSONResponse(answer, status_code=202)

    async def document(request: Request) -> Response:
        found = api.documents.get(request.path_params["id"])
        if found is None:
            return problem(404, "not_found", "There is no such object.")
        action = request.path_params.get("action")
        if action == "retry":
            if found["state"] == "indexed":
                return problem(409, "not_retryable", "A document in state 'indexed' can not be retried.")
            found.update(state="received", code=None, message=None)
            return JSONResponse({"document": found, "job_id": "j", "duplicate_of": None}, status_code=202)
        if action == "cancel":
            found.update(state="cancelled", message="Cancelled before it started.")
            return JSONResponse(found, status_code=202)
        if action == "versions":
            return JSONResponse({"items": [{"id": "v", "number": 1, "state": found["state"]}], "next": None})
        if request.method == "DELETE":
            del api.documents[found["id"]]
            return JSONResponse({"job_id": str(uuid.uuid4())}, status_code=202)
        return JSONResponse(api.seen(found))

    async def page(request: Request) -> Response:
        return JSONResponse({"number": request.path_params["number"], "label": "iii", "state": "ok", "code": None,
                             "message": None, "text": "Red \x1b[31mink.", "lines": [], "elements": []})  # fmt: skip

    async def search(request: Request) -> Response:
        api.bodies.append(await request.json())
        return JSONResponse({"hits": api.hits, "searched": {"dropped": 0}})

    async def events() -> AsyncIterator[bytes]:
        for kind, data in api.events:
            if kind == "hold":
                await asyncio.sleep(3600)  # until the client leaves
            if kind == "cut":
                raise ConnectionAbortedError  # uvicorn closes the connection without the body's end
            frame = f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
            half = len(frame) // 2
            yield frame[:half]
            await asyncio.sleep(0.005)
            yield frame[half:]

    async def ask(request: Request) -> Response:
        body = await request.json()
        api.bodies.append(body)
        if not body["question"].strip():
            return problem(422, "bad_question", "A question holds at least one word.")
        assert request.headers["accept"] == "text/event-stream"
        return StreamingResponse(events(), media_type="text/event-stream")

    async def answers(request: Request) -> Response:
        only = request.query_params.get("collection_id")
        return list_of([a for a in api.answers.values() if only in (None, a["collection_id"])], request)

    async def answer(request: Request) -> Response:
        found = api.answers.get(request.path_params["id"])
        if found is None:
            return problem(404, "not_found", "There is no such object.")
        if request.method == "POST":
            assert not await request.body()
            return StreamingResponse(events(), media_type="text/event-stream")
        return JSONResponse(found)

    async def jobs(request: Request) -> Response:
        state = request.query_params.get("state")
        return list_of([j for j in api.jobs.values() if state in (None, j["state"])], request)

    async def job(request: Request) -> Response:
        found = api.jobs.get(request.path_params["id"])
        if found is None:
            return problem(404, "not_found", "There is no such object.")
        if request.url.path.endswith("/events"):
            happened = [
                {"at": AT, "event": "queued", "detail": {}},
                {"at": AT, "event": "claimed", "detail": {"fence": 1}},
            ]
            return JSONResponse({"items": happened, "next": None})
        if request.method == "POST":
            found["state"] = "cancelled" if found["state"] == "queued" else found["state"]
        return JSONResponse(found, status_code=202 if request.method == "POST" else 200)

    async def login(request: Request) -> Response:
        body = await request.json()
        if body["password"] != "right":
            return problem(401, "bad_login", "E-mail address or password is wrong.")
        token = f"session-of-{body['email']}"
        api.tokens.add(token)
        return JSONResponse({"token": token, "expires_at": "2999-01-01T00:00:00+00:00"})

    async def logout(request: Request) -> Response:
        api.tokens.discard(request.headers["authorization"].removeprefix("Bearer "))
        return Response(status_code=204)

    async def me(request: Request) -> Response:
        token = request.headers["authorization"].removeprefix("Bearer ")
        return JSONResponse({"email": token, "role": "owner", "scopes": None, "user_id": "u", "tenant_id": "t"})

    async def users(request: Request) -> Response:
        if request.method == "POST":
            body = await request.json()
            api.bodies.append(dict(body))
            body.pop("password")
            made = {**body, "id": str(uuid.uuid4()), "created_at": AT, "disabled_at": None}
            api.users[made["id"]] = made
            return JSONResponse(made, status_code=201)
        return JSONResponse({"items": list(api.users.values()), "next": None})

    async def user(request: Request) -> Response:
        body = await request.json()
        found = api.users[request.path_params["id"]]
        found["role"] = body.get("role", found["role"])
        found["disabled_at"] = AT if body.get("disabled") else None
        return JSONResponse(found)

    async def keys(request: Request) -> Response:
        if request.method == "POST":
            body = await request.json()
            made = {**body, "id": str(uuid.uuid4()), "user_id": "u", "hint": "cret", "created_at": AT,
                    "revoked_at": None, "last_used_at": None}  # fmt: skip
            api.keys[made["id"]] = made
            answer = {"id": made["id"], "token": "fr_secret", "expires_at": body["expires_at"]}
            return JSONResponse(answer, status_code=201)
        return JSONResponse({"items": list(api.keys.values()), "next": None})

    async def key(request: Request) -> Response:
        found = api.keys[request.path_params["id"]]
        found["revoked_at"] = AT
        return JSONResponse(found)

    async def healthz(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(request: Request) -> Response:
        return JSONResponse({"status": "not ready", "missing": api.missing}, status_code=503 if api.missing else 200)

    v1 = "/api/v1"
    return [
        Route("/healthz", healthz), Route("/readyz", readyz), Route(f"{v1}/me", me),
        Route(f"{v1}/login", login, methods=["POST"]), Route(f"{v1}/logout", logout, methods=["POST"]),
        Route(f"{v1}/users", users, methods=["GET", "POST"]), Route(f"{v1}/users/{{id}}", user, methods=["PATCH"]),
        Route(f"{v1}/api-keys", keys, methods=["GET", "POST"]),
        Route(f"{v1}/api-keys/{{id}}", key, methods=["DELETE"]),
        Route(f"{v1}/collections", collections, methods=["GET", "POST"]),
        Route(f"{v1}/collections/{{id}}", collection, methods=["GET", "DELETE"]),
        Route(f"{v1}/collections/{{id}}/status", status), Route(f"{v1}/collections/{{id}}/grants", grants),
        Route(f"{v1}/collections/{{id}}/grants/{{user}}", grants, methods=["PUT", "DELETE"]),
        Route(f"{v1}/collections/{{id}}/documents", documents, methods=["GET", "POST"]),
        Route(f"{v1}/collections/{{id}}/search", search, methods=["POST"]),
        Route(f"{v1}/collections/{{id}}/answers", ask, methods=["POST"]),
        Route(f"{v1}/answers", answers), Route(f"{v1}/answers/{{id}}", answer),
        Route(f"{v1}/answers/{{id}}/again", answer, methods=["POST"]),
        Route(f"{v1}/jobs", jobs), Route(f"{v1}/jobs/{{id}}", job), Route(f"{v1}/jobs/{{id}}/events", job),
        Route(f"{v1}/jobs/{{id}}/cancel", job, methods=["POST"]),
        Route(f"{v1}/documents/{{id}}", document, methods=["GET", "DELETE"]),
        Route(f"{v1}/documents/{{id}}/pages/{{number:int}}", page),
        Route(f"{v1}/documents/{{id}}/{{action}}", document, methods=["GET", "POST"]),
    ]  # fmt: skip


@contextmanager
def scripted_api(*, delay_s: float = 0.0) -> Iterator[ScriptedApi]:
    """Serve on a free port; the address is known at once, the server answers after `delay_s`."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    api = ScriptedApi(url=f"http://127.0.0.1:{port}")
    config = uvicorn.Config(_Door(Starlette(routes=_routes(api)), api), log_level="critical", lifespan="off")
    server = uvicorn.Server(config)

    def serve() -> None:
        time.sleep(delay_s)
        listener.listen()
        server.run(sockets=[listener])

    thread = threading.Thread(target=serve)
    thread.start()
    deadline = time.monotonic() + 10
    while not delay_s and not server.started:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    try:
        yield api
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
