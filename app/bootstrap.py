"""The one wiring point: settings -> clients. API and workers get everything from here.

`python -m app.bootstrap --json` migrates the schema and makes the first administrator when there is none.
"""

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from importlib import resources
from uuid import UUID

import httpx
import redis
import structlog
from pydantic import SecretStr
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from app.answering.tools import AnswerTools
from app.core.blobs import BlobStore
from app.core.clock import now
from app.core.db import Database, UnitOfWork
from app.core.errors import UnavailableError
from app.core.ids import derived_id, new_id
from app.core.observability import configure_logging
from app.documents.ingest import IngestTools
from app.engine import admission, catalog
from app.engine.client import EngineClient
from app.identity import accounts, secrets
from app.identity.permissions import Principal, Role, Scope
from app.jobs.queues import QUEUES
from app.retrieval.search import SearchTools
from app.settings import Settings, load
from ingestion.embedding import EmbeddingClient
from ingestion.index import IndexRejected, IndexUnavailable, VectorIndex

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Services:
    """The clients of one process."""

    settings: Settings
    database: Database
    blobs: BlobStore
    index: VectorIndex
    embedder: EmbeddingClient
    engine: EngineClient
    profile: catalog.EngineProfile
    embeddings_id: UUID


def services(settings: Settings) -> Services:
    """Make the clients. Connects to nothing yet. Raises SettingsError when an address is missing."""
    settings.require("database_url", "database_platform_url", "redis_url", "qdrant_url", "engine_url", "embeddings_url")
    profile = catalog.profile(settings)
    return Services(
        settings=settings,
        database=Database(settings.database_url, settings.database_platform_url),
        blobs=BlobStore(settings.blob_dir),
        index=VectorIndex(
            settings.qdrant_url,
            settings.qdrant_api_key.get_secret_value(),
            index_name(settings),
            settings.embeddings_dimensions,
        ),
        embedder=EmbeddingClient(
            settings.embeddings_url,
            settings.embeddings_api_key.get_secret_value(),
            settings.embeddings_model,
            settings.embeddings_dimensions,
        ),
        engine=EngineClient(profile, settings.engine_api_key.get_secret_value()),
        profile=profile,
        embeddings_id=derived_id("engine", settings.embeddings_url),
    )


def index_name(settings: Settings) -> str:
    """Name of the index's collection: one per embedding model, shared by all tenants."""
    return "fullread_" + "".join(c if c.isalnum() else "_" for c in settings.embeddings_model.lower())


def register_engines(made: Services) -> None:
    """Write the engines' rows, which admission locks and counts on."""
    admission.register(
        made.database,
        engine_id=made.profile.engine_id,
        name=made.profile.name,
        url=made.profile.url,
        model=made.profile.model,
        slots=made.profile.slots,
    )
    admission.register(
        made.database,
        engine_id=made.embeddings_id,
        name="embeddings",
        url=made.settings.embeddings_url,
        model=made.settings.embeddings_model,
        slots=made.settings.embeddings_slots,
    )


def confirm(made: Services) -> None:
    """Beside the API's start: the engines' rows follow the settings, and the index's collection is there.

    Best effort: what is away now is named by /readyz, and made by whoever needs it.
    """
    try:
        register_engines(made)
        made.index.ensure()
    except (UnavailableError, DBAPIError, IndexUnavailable, IndexRejected) as error:
        log.warning("confirm_failed", error=type(error).__name__)


def ingest_tools(made: Services) -> IngestTools:
    """Tools of the ingest worker; the sandbox starts its zygote with the first file."""
    from ingestion.sandbox import Sandbox

    def seat(tenant_id: UUID) -> AbstractContextManager[object]:
        return admission.seat(
            made.database, made.embeddings_id, tenant_id=tenant_id, lane="batch", holder="ingest", wait_s=60
        )

    return IngestTools(
        database=made.database,
        blobs=made.blobs,
        sandbox=Sandbox(made.settings.models_dir.expanduser()),
        embedder=made.embedder,
        index=made.index,
        seat=seat,
    )


def search_tools(made: Services) -> SearchTools:
    """Tools of a search."""

    def seat(tenant_id: UUID) -> AbstractContextManager[object]:
        return admission.seat(
            made.database, made.embeddings_id, tenant_id=tenant_id, lane="interactive", holder="search", wait_s=5
        )

    return SearchTools(made.database, made.index, made.embedder, made.settings.dense_weight, seat)


def answer_tools(made: Services) -> AnswerTools:
    """Tools of an answer."""
    return AnswerTools(
        database=made.database,
        search=search_tools(made),
        engine=made.engine,
        profile=made.profile,
        context_tokens=made.settings.context_tokens,
        full_pass_tokens=made.settings.full_pass_tokens,
        prefill_tokens_per_s=made.settings.engine_prefill_tokens_per_s,
        embeddings_model=made.settings.embeddings_model,
        wait_s=made.settings.engine_wait_s,
        salt_key=made.settings.secret_key.get_secret_value().encode(),
    )


def missing_parts(made: Services) -> list[str]:
    """What is not there of everything that uploads and answers need, in words; empty when ready."""
    settings, embeddings = made.settings, made.settings.embeddings_url
    checks: list[tuple[str, Callable[[], bool]]] = [
        ("index: the vector index does not answer", made.index.ready),
        (
            "embeddings: the embedding server does not answer",
            lambda: _answers(embeddings, settings.embeddings_api_key),
        ),
        ("engine: the model server does not answer", lambda: _answers(settings.engine_url, settings.engine_api_key)),
        ("broker: Redis does not answer", lambda: _broker_answers(settings.redis_url)),
    ]
    missing = [sentence for sentence, check in checks if not check()]
    try:
        made.database.ping()
        missing += [f"workers: nobody consumes the queue '{queue}'" for queue in _idle_queues(made.database)]
    except (UnavailableError, DBAPIError):
        missing.append("database: PostgreSQL does not answer, or its schema is not migrated")
    return missing


def _answers(url: str, key: SecretStr) -> bool:
    """Whether a model server works: /health, or, for servers without it, the list of its models."""
    base, headers = url.rstrip("/"), {"Authorization": f"Bearer {key.get_secret_value()}"}
    try:
        status = httpx.get(f"{base}/health", timeout=2, headers=headers).status_code
        if status == httpx.codes.NOT_FOUND:
            status = httpx.get(f"{base}/v1/models", timeout=2, headers=headers).status_code
    except httpx.HTTPError:
        return False
    return status == httpx.codes.OK


def _broker_answers(url: str) -> bool:
    client = redis.Redis.from_url(url, socket_timeout=2, socket_connect_timeout=1)
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False
    finally:
        client.close()


def _idle_queues(database: Database) -> list[str]:
    """Queues without a recent sign of life of a worker; a worker in a long job shows it by the job's lease."""
    with database.platform() as work:
        fresh = {
            queue
            for (queue,) in work.session.execute(
                text(
                    "select unnest(queues) from worker_beats where at > now() - interval '30 seconds'"
                    " union select queue from jobs where state = 'running' and lease_until > now()"
                )
            )
        }
    return [queue for queue in QUEUES if queue not in fresh]


@dataclass(frozen=True, slots=True)
class FirstAdmin:
    """The first administrator of an installation; password and key are shown once."""

    tenant_id: str
    email: str
    password: str
    api_key: str


def migrate(owner_url: str) -> None:
    """Bring the schema to the newest revision, as fullread_owner."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(resources.files("app").joinpath("migrations")))
    config.set_main_option("sqlalchemy.url", owner_url.replace("%", "%%"))
    command.upgrade(config, "head")


def prepare(settings: Settings) -> None:
    """Everything that must be there before the API starts: schema, engines' rows, the index's collection.

    Idempotent. Raises UnavailableError when a service does not answer.
    """
    settings.require("database_owner_url", "database_url", "database_platform_url")
    migrate(settings.database_owner_url)
    made = services(settings)
    register_engines(made)
    forget_workers(made.database)
    try:
        made.index.ensure()
    except IndexUnavailable as error:
        raise UnavailableError("index_unavailable", "The vector index does not answer.") from error
    made.database.dispose()


def forget_workers(database: Database) -> None:
    """Drop the workers' signs of life of an earlier run: the ones that live say so again within seconds."""
    with database.platform() as work:
        work.session.execute(text("delete from worker_beats"))


def first_admin(settings: Settings, *, email: str = "admin@localhost", tenant: str = "main") -> FirstAdmin | None:
    """Make the first tenant with its owner when there is no tenant. None when there was one."""
    engine = create_engine(settings.database_owner_url)
    try:
        with Session(engine) as session, session.begin():
            # One at a time: two processes that start together make one administrator, not two.
            session.execute(text("lock table tenants in exclusive mode"))
            if session.execute(text("select count(*) from tenants")).scalar_one():
                return None
            return add_tenant(session, name=tenant, email=email)
    finally:
        engine.dispose()


def add_tenant(session: Session, *, name: str, email: str) -> FirstAdmin:
    """A new tenant with its owner, as fullread_owner in the caller's transaction."""
    tenant_id = new_id()
    session.execute(
        text("insert into tenants (id, name, created_at) values (:id, :name, :at)"),
        {"id": tenant_id, "name": name, "at": now()},
    )
    session.execute(text("select set_config('app.tenant_id', :id, true)"), {"id": str(tenant_id)})
    uow = UnitOfWork(session=session, tenant_id=tenant_id)
    password = secrets.new_password()
    user = accounts.create_user(uow, None, email=email, password=password, role=Role.OWNER)
    principal = Principal(tenant_id=tenant_id, user_id=user.id, role=Role.OWNER, email=email)
    key = accounts.create_api_key(uow, principal, name="first key", scopes=frozenset(Scope))
    session.flush()
    return FirstAdmin(str(tenant_id), email, password, key.token)


def main(argv: list[str] | None = None) -> int:
    """Entry point of `python -m app.bootstrap`."""
    parser = argparse.ArgumentParser(
        prog="python -m app.bootstrap",
        description="Migrate the database and make the first administrator. Needs DATABASE_OWNER_URL.",
    )
    parser.add_argument("--email", default="admin@localhost", help="e-mail address of the first administrator")
    parser.add_argument("--tenant", default="main", help="name of the first tenant")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(argv)
    settings = load()
    configure_logging(settings.log_level)
    try:
        prepare(settings)
        # Last: nothing that can fail stands between the new password and its printing.
        first = first_admin(settings, email=options.email, tenant=options.tenant)
    except UnavailableError as error:
        print(error.message, file=sys.stderr)  # noqa: T201
        return 1
    answer = {"created": first is not None, **(asdict(first) if first else {})}
    if options.json:
        print(json.dumps(answer))  # noqa: T201
    elif first is not None:
        print(f"administrator {first.email} password {first.password} API key {first.api_key}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
