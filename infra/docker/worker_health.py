"""Health check of a worker container: has this host's worker given a sign of life for its queue in ten minutes?

Celery's own ping is off (no remote control), so the row that /readyz looks at decides here too.
"""

import os
import socket
import sys

import psycopg

RECENT = "select 1 from worker_beats where starts_with(name, %s) and at > now() - interval '10 minutes'"


def main(queue: str) -> int:
    """0 when the worker is well."""
    url = os.environ["DATABASE_PLATFORM_URL"].replace("postgresql+psycopg://", "postgresql://", 1)
    with psycopg.connect(url, connect_timeout=5) as connection:
        found = connection.execute(RECENT, (f"{queue}@{socket.gethostname()}:",)).fetchone()
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
