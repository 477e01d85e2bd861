"""The Celery application: early acknowledgement, no prefetch, results never kept. Rows are the truth.

Workers load the tasks by `-I workers.tasks`; beat, which only sends, starts without them.
"""

from celery import Celery
from kombu import Queue  # type: ignore[attr-defined]

from app.core.observability import configure_logging
from app.jobs.queues import QUEUES
from app.settings import load

settings = load()
settings.require("redis_url")

app = Celery("fullread", broker=settings.redis_url)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=False,
    worker_prefetch_multiplier=1,
    worker_disable_prefetch=True,
    broker_transport_options={"visibility_timeout": 300},
    visibility_timeout=300,
    task_serializer="json",
    accept_content=["json"],
    enable_utc=True,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
    worker_send_task_events=False,
    worker_enable_remote_control=False,
    task_create_missing_queues=False,
    task_queues=[Queue(name) for name in QUEUES],  # type: ignore[no-untyped-call]
    task_default_queue="control",
    beat_schedule={
        "relay-and-sweep": {"task": "fullread.sweep", "schedule": 1.0, "options": {"queue": "control", "expires": 5}},
    },
)
configure_logging(settings.log_level)
