"""Hints to the workers: "look at the rows". The only Celery sender in `app`; losing a hint loses nothing."""

from functools import lru_cache
from uuid import UUID

import structlog
from celery import Celery
from kombu.exceptions import OperationalError

from app.settings import load

log = structlog.get_logger()

TASK_WORK = "fullread.work"


@lru_cache(maxsize=1)
def _sender() -> Celery:
    app = Celery("fullread-sender", broker=load().redis_url)
    app.conf.update(
        task_ignore_result=True,
        broker_connection_retry=False,
        broker_transport_options={
            "visibility_timeout": 300,
            "socket_timeout": 2,
            "socket_connect_timeout": 1,
            "max_retries": 0,
        },
    )
    return app


def send(queue: str, job_id: UUID | None = None) -> bool:
    """Send a hint, best effort: False (and a log line) when the broker is away; the relay repeats it."""
    try:
        _sender().send_task(
            TASK_WORK,
            kwargs={"queue": queue, "job_id": str(job_id) if job_id else None},
            queue=queue,
            retry=False,
            ignore_result=True,
        )
    except (OperationalError, OSError) as error:
        log.warning("hint_not_sent", queue=queue, reason=type(error).__name__)
        return False
    return True
