"""Structured logs and the process's metrics. Ids and counts only: document text never reaches either."""

import logging
import sys
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

registry = CollectorRegistry()
http_requests = Counter("fullread_http_requests", "Requests", ["route", "status"], registry=registry)
http_seconds = Histogram("fullread_http_seconds", "Seconds to the first byte", ["route"], registry=registry)
orphan_hits = Counter("vector_orphan_hits", "Index hits without a visible row", registry=registry)
answers_total = Counter("fullread_answers", "Answers by state and route", ["state", "route"], registry=registry)
citations_total = Counter("fullread_citations", "Citations by verification", ["verified"], registry=registry)
jobs_waiting = Gauge("fullread_jobs_waiting", "Queued jobs", ["queue"], registry=registry)
engine_leases = Gauge("fullread_engine_leases", "Live engine leases", ["engine"], registry=registry)

_SECRET_NAMES = ("password", "secret", "token", "api_key", "authorization", "cookie")


def _redact(_logger: Any, _method: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    for name in event:
        if any(part in name.lower() for part in _SECRET_NAMES):
            event[name] = "[redacted]"
    return event


def configure_logging(level: str) -> None:
    """JSON lines on stderr, one per event, with secrets redacted by field name."""
    logging.basicConfig(level=level, stream=sys.stderr, format="%(message)s", force=True)
    for noisy in ("httpx", "httpcore", "alembic", "qdrant_client"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _redact,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level]),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
