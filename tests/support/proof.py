"""Doors and corpora of the full-pass tests: the shipped app with a scripted engine that answers from its prompt."""

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from app.core.db import Database
from app.engine import admission, catalog
from app.main import create_app
from app.settings import Settings
from tests.support.scripted_engine import Messages, Script, ScriptedEngine
from tests.support.served import served
from tests.support.stack import Stack, upload, wait_for_end

_PAGE = re.compile(r"^\[\[PAGE (\d+) \w+\]\].*$", re.MULTILINE)
_SOURCE = re.compile(r"^\[\[SOURCE (\d+) \w+\]\]\n\(.*\)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Door:
    """The app with a scripted engine behind it."""

    url: str
    engine: ScriptedEngine
    settings: Settings
    stack: Stack

    def client(self, key: str | None = None) -> httpx.Client:
        token = key or self.stack.owner.api_key
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {token}"}, timeout=120)

    def ask(self, collection: str, question: str, route: str = "full", **body: Any) -> dict[str, Any]:
        """The whole answer."""
        with self.client() as client:
            answer = client.post(
                f"/api/v1/collections/{collection}/answers", json={"question": question, "route": route, **body}
            )
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def events(self, path: str, body: dict[str, Any] | None = None) -> list[tuple[str, dict[str, Any]]]:
        """All events of a streamed answer."""
        with (
            self.client() as client,
            client.stream("POST", path, json=body, headers={"accept": "text/event-stream"}) as reply,
        ):
            return list(_events(reply.iter_lines()))


def _events(lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    kind = ""
    for line in lines:
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))


@contextmanager
def door(
    stack: Stack,
    database: Database,
    *,
    form: str = "generative",
    window_tokens: int = 8192,
    slots: int = 2,
    wait_s: float = 5.0,
    **changes: Any,
) -> Iterator[Door]:
    """A door; `changes` are further settings."""
    with ScriptedEngine() as engine:
        engine.change(window_tokens=window_tokens)
        settings = stack.settings.model_copy(
            update={
                "engine_url": engine.url,
                "engine_model": engine.model,
                "engine_api_key": type(stack.settings.engine_api_key)(engine.api_key),
                "engine_answer_form": form,
                "engine_window_tokens": window_tokens,
                "engine_slots": slots,
                "engine_wait_s": wait_s,
                **changes,
            }
        )
        profile = catalog.profile(settings)
        admission.register(
            database, engine_id=profile.engine_id, name="scripted", url=profile.url, model=profile.model, slots=slots
        )
        with served(create_app(settings)) as url:
            yield Door(url, engine, settings, stack)


def filled(stack: Stack, files: Sequence[tuple[str, bytes]]) -> str:
    """A new collection with these files, all of them at their end state."""
    with stack.client() as client:
        collection = str(client.post("/api/v1/collections", json={"name": f"proof {time.time_ns()}"}).json()["id"])
        made = [upload(client, collection, name, content)["document"]["id"] for name, content in files]
        for document in made:
            wait_for_end(client, document)
    return collection


def asked(messages: Messages) -> str:
    """The task: what stands behind the corpus."""
    content = str(messages[-1]["content"])
    end = content.rfind("[[END ")
    return content[end:] if end >= 0 else content


def pages(messages: Messages) -> dict[int, str]:
    """The pages in a prompt by their number (or the numbered sources of a merge)."""
    content = str(messages[-1]["content"])
    heads = list(_PAGE.finditer(content)) or list(_SOURCE.finditer(content))
    found = {}
    for head in heads:
        following = re.search(r"^\[\[", content[head.end() :], re.MULTILINE)
        text = content[head.end() :][: following.start()] if following else content[head.end() :]
        found[int(head.group(1))] = text.strip()
    return found


def quoting(*words: str) -> Script:
    """A model that reports each sentence with one of the words, with its mark, and nothing else."""

    def reply(messages: Messages) -> str:
        said = []
        for number, text in pages(messages).items():
            sentences = [s.strip() for s in re.findall(r"[^.\n]+\.", text) if any(word in s for word in words)]
            said.extend(f'Found it. [{number}: "{sentence}"]' for sentence in sentences)
        return " ".join(said) or "NOT IN THE SOURCES"

    return Script(text=reply)
