"""Write docs/openapi.json from the application, or with --check fail when the file differs from it."""

import argparse
import json
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parents[1] / "docs" / "openapi.json"
# Addresses that nothing connects to: the routes alone are asked for.
NOWHERE = {
    "DATABASE_URL": "postgresql+psycopg://nobody@127.0.0.1:9/none",
    "DATABASE_PLATFORM_URL": "postgresql+psycopg://nobody@127.0.0.1:9/none",
    "REDIS_URL": "redis://127.0.0.1:9/0",
    "QDRANT_URL": "http://127.0.0.1:9",
    "ENGINE_URL": "http://127.0.0.1:9",
    "EMBEDDINGS_URL": "http://127.0.0.1:9",
}


def described() -> str:
    """The OpenAPI document as stable, readable JSON."""
    from app.main import create_app
    from app.settings import Settings

    document = create_app(Settings.model_validate(NOWHERE)).openapi()
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> int:
    """1 when --check finds a difference, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    only_check = parser.parse_args().check
    text = described()
    if not only_check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        sys.stderr.write(f"{TARGET.name} differs from the application: run `make openapi` and look at the difference\n")
        return 1
    sys.stdout.write(f"{TARGET.name} is up to date\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
