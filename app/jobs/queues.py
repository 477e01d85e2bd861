"""The queues: all of them must be consumed before the platform is ready."""

INGEST = "ingest"
CONTROL = "control"
QUEUES = (INGEST, CONTROL)
