"""The ASGI application: `uvicorn app.main:create_app --factory`."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from app import __version__, bootstrap
from app.api import answers, bi, collections, documents, identity, platform, problems
from app.api.middleware import RequestFrame
from app.core.observability import configure_logging
from app.settings import Settings, load

API_PREFIX = "/api/v1"


def create_app(settings: Settings | None = None) -> FastAPI:
    """The application that ships, and that the tests test."""
    settings = settings or load()
    configure_logging(settings.log_level)
    made = bootstrap.services(settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # Beside the start: the first search should not wait for the index's library, nor the port for either.
        threading.Thread(target=bootstrap.confirm, args=(made,), name="confirm", daemon=True).start()
        yield
        made.embedder.close()
        made.database.dispose()

    app = FastAPI(
        title="Fullread",
        version=__version__,
        description="Answers over large private document sets, with proof of what was read.",
        lifespan=lifespan,
        # A redirect would be built from the Host header of the request.
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        openapi_url=f"{API_PREFIX}/openapi.json",
    )
    app.state.services = made
    problems.install(app)
    app.include_router(platform.root)
    for router in (identity.router, collections.router, documents.router, answers.router, bi.router, platform.router):
        app.include_router(router, prefix=API_PREFIX)
    app.add_middleware(RequestFrame, max_upload_bytes=settings.max_upload_bytes)
    return app
