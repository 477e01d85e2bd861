"""The real local stack for tests: started once per session by `fullread up --detach`, with helpers to look inside."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from app import bootstrap
from app.core.blobs import BlobStore
from app.core.db import Database
from app.local import postgres, valkey
from app.local.secrets import load_or_create
from app.local.state import Home
from app.settings import Settings
from ingestion.index import VectorIndex

END_STATES = ("indexed", "partial", "failed", "needs_password", "needs_ocr", "cancelled")


@dataclass(frozen=True, slots=True)
class Account:
    """A tenant's owner (or another user) with an API key."""

    tenant_id: UUID
    email: str
    password: str
    api_key: str


@dataclass(frozen=True, slots=True)
class Stack:
    """The running stack: its address, its first owner, and its services' addresses as settings."""

    home: Home
    api_url: str
    owner: Account
    settings: Settings

    def client(self, key: str | None = None) -> httpx.Client:
        """An HTTP client with the owner's key, or another one; the empty string sends none."""
        token = self.owner.api_key if key is None else key
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.Client(base_url=self.api_url, headers=headers, timeout=120)

    def database(self) -> Database:
        """The product's own database scopes."""
        return Database(self.settings.database_url, self.settings.database_platform_url, pool_size=2)

    def index(self) -> VectorIndex:
        """The product's own index client."""
        return VectorIndex(
            self.settings.qdrant_url,
            self.settings.qdrant_api_key.get_secret_value(),
            bootstrap.index_name(self.settings),
            self.settings.embeddings_dimensions,
        )

    def blobs(self) -> BlobStore:
        """The product's own blob store."""
        return BlobStore(self.settings.blob_dir)

    def state(self) -> dict[str, Any]:
        """The supervisor's state file."""
        return dict(json.loads(self.home.state_file.read_text()))

    def new_tenant(self, name: str) -> Account:
        """Another tenant with its owner and key."""
        engine = create_engine(self.settings.database_owner_url)
        try:
            with Session(engine) as session, session.begin():
                made = bootstrap.add_tenant(session, name=name, email=f"owner@{name}.example")
        finally:
            engine.dispose()
        return Account(UUID(made.tenant_id), made.email, made.password, made.api_key)


def read(home: Home) -> Stack:
    """The stack that runs on a data directory."""
    keys = load_or_create(home.secrets)
    state = json.loads(home.state_file.read_text())
    port = {service["name"]: service["port"] for service in state["services"]}
    admin = json.loads(home.admin_file.read_text())
    settings = Settings.model_validate(
        {
            "DATABASE_URL": postgres.url("fullread_app", keys.fullread_app, port["postgres"]),
            "DATABASE_PLATFORM_URL": postgres.url("fullread_platform", keys.fullread_platform, port["postgres"]),
            "DATABASE_OWNER_URL": postgres.url("fullread_owner", keys.fullread_owner, port["postgres"]),
            "REDIS_URL": valkey.url(keys.valkey, port["valkey"]),
            "QDRANT_URL": f"http://127.0.0.1:{port['vectors']}",
            "QDRANT_API_KEY": keys.vectors,
            "ENGINE_URL": f"http://127.0.0.1:{port['engine']}",
            "ENGINE_API_KEY": keys.engine,
            "EMBEDDINGS_URL": f"http://127.0.0.1:{port['embeddings']}",
            "EMBEDDINGS_API_KEY": keys.embeddings,
            "FULLREAD_SECRET_KEY": keys.web,
            "FULLREAD_BLOB_DIR": str(home.blobs),
        }
    )
    me = httpx.get(f"{state['api_url']}/api/v1/me", headers={"Authorization": f"Bearer {admin['api_key']}"}, timeout=30)
    owner = Account(UUID(me.json()["tenant_id"]), admin["email"], admin["password"], admin["api_key"])
    return Stack(home, state["api_url"], owner, settings)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def running(data_dir: Path) -> Iterator[Stack]:
    """Start the stack, hand it out, stop it."""
    environment = {**os.environ, "FULLREAD_LOG_LEVEL": "WARNING"}
    command = [sys.executable, "-m", "app.cli"]
    started = subprocess.run(
        # A port of its own: a service that is killed on purpose must find it free when it comes back.
        [*command, "up", "--data", str(data_dir), "--port", str(_free_port()), "--detach"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    try:
        assert started.returncode == 0, f"the stack did not start:\n{started.stdout}\n{started.stderr}"
        yield read(Home(data_dir.resolve()))
    finally:
        subprocess.run(
            [*command, "down", "--data", str(data_dir)], env=environment, capture_output=True, timeout=120, check=False
        )


def new_collection(client: httpx.Client, name: str) -> str:
    """Make a collection and return its id."""
    answer = client.post("/api/v1/collections", json={"name": name})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def upload(client: httpx.Client, collection_id: str, name: str, content: bytes) -> dict[str, Any]:
    """Upload bytes and return the answer (document, job_id, duplicate_of)."""
    answer = client.post(f"/api/v1/collections/{collection_id}/documents", files={"file": (name, content)})
    assert answer.status_code in (200, 202), answer.text
    return dict(answer.json())


def wait_for_end(client: httpx.Client, document_id: str, timeout_s: float = 90) -> dict[str, Any]:
    """Wait until the document is in an end state and return it."""
    deadline = time.monotonic() + timeout_s
    while True:
        document = client.get(f"/api/v1/documents/{document_id}").json()
        if document["state"] in END_STATES:
            return dict(document)
        assert time.monotonic() < deadline, f"still {document['state']} after {timeout_s} s"
        time.sleep(0.1)


def wait_for_job(client: httpx.Client, job_id: str, timeout_s: float = 60) -> dict[str, Any]:
    """Wait until a job is over and return it."""
    deadline = time.monotonic() + timeout_s
    while True:
        job = client.get(f"/api/v1/jobs/{job_id}").json()
        if job["state"] in ("succeeded", "failed", "cancelled"):
            return dict(job)
        assert time.monotonic() < deadline, f"job still {job['state']} after {timeout_s} s"
        time.sleep(0.1)


def wait_until_ready(stack: Stack, timeout_s: float = 60) -> None:
    """Wait until /readyz says that nothing is missing."""
    deadline = time.monotonic() + timeout_s
    with stack.client("") as client:
        while True:
            try:
                answer = client.get("/readyz")
                if answer.status_code == 200:
                    return
                last = answer.text
            except httpx.HTTPError as error:
                last = type(error).__name__
            assert time.monotonic() < deadline, f"not ready after {timeout_s} s: {last}"
            time.sleep(0.2)
