"""The queues: all of them must be consumed before the platform is ready."""

INGEST = "ingest"
CONTROL = "control"
ANALYSIS = "analysis"
QUEUES = (INGEST, CONTROL, ANALYSIS)
#: Jobs of a queue that run at once over all workers: an analysis takes minutes, and a child must be left to maintain.
AT_MOST = {ANALYSIS: 1}
