"""The HTTP client: problems become failures, a server that restarts is waited for, events are read as they come."""

import codecs
import json
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import httpx

from app import __version__
from app.cli.output import CommandError

PREFIX = "/api/v1"
#: Statuses of a server that is starting, restarting or busy.
BUSY = frozenset({429, 502, 503, 504})
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_TIMEOUT = httpx.Timeout(60.0, connect=5.0)
#: An answer on a small machine, or in a queue.
_ANSWER_TIMEOUT = httpx.Timeout(900.0, connect=5.0)
_PAGE_ROWS = 200

Json = dict[str, Any]


class Api:
    """One server. Thread-safe. Every method raises CommandError with the server's problem object.

    With `patience_s` a request that meets a dead or busy server is sent again for that long: use it only for requests
    that may arrive twice. `stop` ends all waiting.
    """

    def __init__(self, url: str, token: str, *, data: Path | None = None, patience_s: float = 0.0) -> None:
        self.url = url
        self.data = data
        self.patience_s = patience_s
        self.stop = threading.Event()
        local = urlsplit(url).hostname in _LOOPBACK
        headers = {"user-agent": f"fullread-cli/{__version__}"}
        if token:
            headers["authorization"] = f"Bearer {token}"
        self._client = httpx.Client(
            base_url=url,
            headers=headers,
            timeout=_TIMEOUT,
            trust_env=not local,  # a proxy of the environment must not get what goes to this machine
            verify=url.startswith("https"),  # loading certificates takes longer than a local request
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all waiting and close the connections."""
        self.stop.set()
        self._client.close()

    def get(self, path: str, **parameters: Any) -> Json:
        """A JSON object; parameters that are None are left out."""
        wanted = {name: value for name, value in parameters.items() if value is not None}
        return self._json(lambda: self._client.get(PREFIX + path, params=wanted))

    def send(self, method: str, path: str, body: Json | None = None) -> Json:
        """A request with a JSON body; an empty answer is an empty object."""
        return self._json(lambda: self._client.request(method, PREFIX + path, json=body))

    def items(self, path: str, **parameters: Any) -> Iterator[Json]:
        """All rows of a list, page by page."""
        cursor = None
        while True:
            page = self.get(path, limit=_PAGE_ROWS, cursor=cursor, **parameters)
            yield from page["items"]
            cursor = page.get("next")
            if cursor is None:
                return

    def upload(self, collection_id: str, path: Path, name: str) -> Json:
        """Send one file, streamed from disk. Raises OSError when it cannot be read."""

        def send() -> httpx.Response:
            with path.open("rb") as file:
                return self._client.post(
                    f"{PREFIX}/collections/{collection_id}/documents",
                    files={"file": ("file", file, "application/octet-stream")},
                    data={"name": name},
                )

        return self._json(send)

    def ask_events(
        self, collection_id: str, question: str, route: str, document_ids: Sequence[str] = ()
    ) -> Generator[tuple[str, Json], None, None]:
        """The events of an answer as they come; `document_ids` empty: over the whole collection.

        Closing the iterator closes the connection, and the server stops, unless it has made the question a job.
        """
        body: Json = {"question": question, "route": route}
        if document_ids:
            body["document_ids"] = list(document_ids)
        return self._answer_events(f"/collections/{collection_id}/answers", body)

    def again_events(self, answer_id: str) -> Generator[tuple[str, Json], None, None]:
        """The events of a stored question that is asked again."""
        return self._answer_events(f"/answers/{answer_id}/again", None)

    def _answer_events(self, path: str, body: Json | None) -> Generator[tuple[str, Json], None, None]:
        try:
            with self._client.stream(
                "POST",
                PREFIX + path,
                json=body,
                headers={"accept": "text/event-stream"},
                timeout=_ANSWER_TIMEOUT,
            ) as response:
                if not response.is_success:
                    response.read()
                    raise self._refused(response)
                yield from _events(response.iter_bytes())
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def lives(self) -> bool:
        """Whether a server answers at all."""
        try:
            return self._client.get("/healthz", timeout=5.0).is_success
        except httpx.HTTPError:
            return False

    def missing(self) -> list[str]:
        """What `/readyz` names as missing; empty when ready or when it cannot be asked."""
        try:
            found = self._client.get("/readyz", timeout=5.0).json()
        except (httpx.HTTPError, ValueError):
            return []
        missing = found.get("missing", []) if isinstance(found, dict) else []
        return [str(sentence) for sentence in missing]

    def _json(self, send: Callable[[], httpx.Response]) -> Json:
        response = self._answered(send)
        if not response.is_success:
            raise self._refused(response)
        if not response.content:
            return {}
        try:
            value = response.json()
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise self._strange(response)
        return value

    def _answered(self, send: Callable[[], httpx.Response]) -> httpx.Response:
        """The first answer that is not "busy", within the patience; else the last one, or CommandError."""
        deadline = time.monotonic() + self.patience_s
        pause = _FIRST_PAUSE_S
        while True:
            try:
                response = send()
            except (httpx.TransportError, RuntimeError) as error:
                # RuntimeError: another thread closed the client.
                if self.stop.is_set() or isinstance(error, RuntimeError):
                    raise CommandError("stopped", "Stopped.") from error
                if time.monotonic() + pause > deadline:
                    raise self._unreachable(error) from error
                wait = pause
            else:
                wanted = response.headers.get("retry-after", "")
                wait = max(pause, min(float(wanted), _LONGEST_PAUSE_S) if wanted.isdigit() else 0.0)
                if response.status_code not in BUSY or time.monotonic() + wait > deadline:
                    return response
            if self.stop.wait(wait):
                raise CommandError("stopped", "Stopped.")
            pause = min(pause * 1.7, _LONGEST_PAUSE_S)

    def _unreachable(self, error: Exception) -> CommandError:
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            start = f"fullread up --data {self.data}" if self.data is not None else "fullread up"
            reason = f"Fullread does not answer at {self.url}. If it should run on this machine, start it: `{start}`."
        elif isinstance(error, httpx.TimeoutException):
            reason = f"{self.url} took too long to answer."
        else:
            reason = f"The connection to {self.url} was cut. Try again."
        return CommandError("unreachable", reason)

    def _refused(self, response: httpx.Response) -> CommandError:
        try:
            problem = response.json()
        except ValueError:
            problem = None
        if not isinstance(problem, dict) or "code" not in problem:
            return self._strange(response)
        return CommandError.of(problem)

    def _strange(self, response: httpx.Response) -> CommandError:
        return CommandError(
            "not_fullread",
            f"{self.url} answered {response.status_code} in a form that is not Fullread's: is the address right, is"
            " there a proxy between?",
            http_status=response.status_code,
        )


def _events(chunks: Iterator[bytes]) -> Iterator[tuple[str, Json]]:
    """Server-sent events as (kind, data). Lines end at LF only: a document's text may hold U+2028 or U+0085."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    waiting = ""
    for chunk in chunks:
        waiting += decoder.decode(chunk)
        while "\n\n" in waiting:
            frame, waiting = waiting.split("\n\n", 1)
            fields = dict(part.split(": ", 1) for part in frame.split("\n") if ": " in part)
            if "data" in fields:
                yield fields.get("event", "message"), json.loads(fields["data"])
