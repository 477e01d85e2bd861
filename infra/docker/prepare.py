"""One-shot of docker-compose.yml: roles and database as superuser, then migrations and the first administrator.

The administrator's password goes to /var/lib/fullread/admin.json (0600), never to the container's log.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from app.migrations.roles import create_roles

SECRETS = Path("/run/secrets")
ADMIN_FILE = Path("/var/lib/fullread/admin.json")


def main() -> int:
    """Idempotent: run at every start of the compose project."""
    password = (SECRETS / "POSTGRES_PASSWORD").read_text(encoding="utf-8").strip()
    create_roles(
        f"postgresql://postgres:{password}@postgres:5432/postgres",
        json.loads((SECRETS / "roles.json").read_text(encoding="utf-8")),
    )
    done = subprocess.run([sys.executable, "-m", "app.bootstrap", "--json"], stdout=subprocess.PIPE, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    if result.get("created"):
        descriptor = os.open(ADMIN_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as target:
            json.dump(result, target)
        sys.stderr.write(f"first administrator: see {ADMIN_FILE}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
