"""Health, readiness, metrics at the root; engines and the audit trail under /api/v1."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from app import __version__
from app.api.dependencies import BIGINT_MAX, LimitQuery, PrincipalDep, ServicesDep, UnitDep
from app.api.schemas import Items
from app.audit import events
from app.bootstrap import missing_parts
from app.core import observability
from app.engine import admission
from app.identity.permissions import Action, require
from app.settings import instance_of

root = APIRouter(tags=["health"])
router = APIRouter(tags=["platform"])


@root.get("/healthz")
def healthz(services: ServicesDep) -> dict[str, str]:
    """This process lives; `instance` tells whose it is."""
    instance = instance_of(services.settings.secret_key.get_secret_value())
    return {"status": "ok", "version": __version__, "instance": instance}


@root.get("/readyz")
def readyz(services: ServicesDep) -> JSONResponse:
    """Whether everything that an answer or an upload needs is there; 503 names what is missing."""
    missing = missing_parts(services)
    return JSONResponse(
        {"status": "ready" if not missing else "not ready", "missing": missing},
        status_code=503 if missing else 200,
    )


@root.get("/metrics")
def metrics() -> Response:
    """Prometheus exposition; no tenant names, no ids."""
    return Response(generate_latest(observability.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/engines")
def list_engines(services: ServicesDep, actor: PrincipalDep) -> Items[dict[str, Any]]:
    """The model servers, their capacity and how much of it is taken."""
    require(actor, Action.READ)
    profile = services.profile
    return Items(
        items=[
            {
                "name": profile.name,
                "model": profile.model,
                "window_tokens": profile.window_tokens,
                "slots": profile.slots,
                "busy": admission.busy_blocks(services.database, profile.engine_id),
                "answer_form": profile.answer_form,
            },
            {
                "name": "embeddings",
                "model": services.settings.embeddings_model,
                "slots": services.settings.embeddings_slots,
                "busy": admission.busy_blocks(services.database, services.embeddings_id),
            },
        ]
    )


@router.get("/audit")
def list_audit(
    uow: UnitDep,
    actor: PrincipalDep,
    limit: LimitQuery = 100,
    cursor: Annotated[int | None, Query(ge=1, le=BIGINT_MAX)] = None,
) -> Items[dict[str, Any]]:
    """The tenant's audit trail, newest first (administrators)."""
    require(actor, Action.READ_AUDIT)
    found = events.recent(uow, before_seq=cursor, limit=limit)
    return Items(
        items=[
            {
                "seq": e.seq,
                "at": e.at.isoformat(),
                "actor": e.actor,
                "action": e.action,
                "object_type": e.object_type,
                "object_id": e.object_id,
                "outcome": e.outcome,
                "request_id": e.request_id,
                "detail": e.detail,
            }
            for e in found
        ],
        next=str(found[-1].seq) if len(found) == limit else None,
    )
