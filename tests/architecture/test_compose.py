"""docker-compose.yml by reading it: hardened, healthy, private, pinned. It is not run here, and the README says so."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from app.settings import Settings
from tests.architecture.tree import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
ONE_SHOT = {"prepare"}
SERVICE_KEYS = {
    "build", "cap_drop", "command", "depends_on", "deploy", "entrypoint", "environment", "healthcheck", "image", "init",
    "logging", "mem_limit", "networks", "pids_limit", "ports", "profiles", "read_only", "restart", "secrets",
    "security_opt", "shm_size", "stop_grace_period", "tmpfs", "user", "volumes",
}  # fmt: skip


def networks(service: dict[str, Any]) -> set[str]:
    return set(service["networks"])


def test_the_parts_of_the_platform_are_there() -> None:
    assert {
        "postgres",
        "valkey",
        "qdrant",
        "api",
        "worker-ingest",
        "worker-control",
        "beat",
        "engine",
    } <= SERVICES.keys()
    assert SERVICES["engine"]["profiles"] == ["gpu"]
    assert "vllm" in SERVICES["engine"]["image"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_hardened(name: str) -> None:
    service = SERVICES[name]
    assert service.keys() <= SERVICE_KEYS
    user = re.fullmatch(r"(\d+):(\d+)", service["user"])
    assert user is not None
    assert int(user[1]) > 0
    assert int(user[2]) > 0
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert "cap_add" not in service
    assert "privileged" not in service
    assert service["pids_limit"] > 0


@pytest.mark.parametrize("name", [name for name in SERVICES if name not in ONE_SHOT])
def test_a_service_says_whether_it_is_well(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert check["test"][0] in {"CMD", "CMD-SHELL"}
    assert {"interval", "timeout", "retries"} <= check.keys()


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_waits_for_health_not_for_a_start(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        wanted = "service_completed_successfully" if other in ONE_SHOT else "service_healthy"
        assert how == {"condition": wanted}, (name, other)


def test_versions_are_pinned_and_ours_is_this_release() -> None:
    for name, service in SERVICES.items():
        assert re.search(r":v?\d+\.\d+(\.\d+)?(-[a-z0-9]+)?$", service["image"]), (name, service["image"])
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    version = re.search(r'^version = "([^"]+)"', project, re.MULTILINE)
    assert version is not None
    assert SERVICES["api"]["image"] == f"fullread:{version[1]}"
    dockerfile = (ROOT / "infra" / "docker" / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^ARG PYTHON_IMAGE=python:3\.\d+\.\d+-slim-\w+$", dockerfile, re.MULTILINE)
    assert re.search(r"^USER 10001:10001$", dockerfile, re.MULTILINE)


def test_only_the_api_is_reachable_and_data_and_models_have_no_way_out() -> None:
    assert [name for name, service in SERVICES.items() if service.get("ports")] == ["api"]
    assert all(port.startswith("127.0.0.1:") for port in SERVICES["api"]["ports"])
    assert [name for name, service in SERVICES.items() if "edge" in networks(service)] == ["api"]
    for name in set().union(*(networks(service) for service in SERVICES.values())) - {"edge"}:
        assert COMPOSE["networks"][name] == {"internal": True}
    assert not networks(SERVICES["engine"]) & {"data", "edge"}


def test_secrets_are_files_and_no_variable_holds_one() -> None:
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            assert variable.endswith("_FILE") or not re.search("PASSWORD|API_KEY|SECRET|DATABASE|REDIS", variable), (
                name, variable, value,
            )  # fmt: skip
        assert set(service.get("secrets", [])) <= COMPOSE["secrets"].keys()
    used = {secret for service in SERVICES.values() for secret in service.get("secrets", [])}
    assert used == COMPOSE["secrets"].keys()


def test_only_the_preparation_gets_the_owners_password() -> None:
    assert [name for name, service in SERVICES.items() if "DATABASE_OWNER_URL" in service["secrets"]] == ["prepare"]


def test_variables_and_secrets_are_settings_of_the_product() -> None:
    known = {field.alias for field in Settings.model_fields.values()}
    given = set(SERVICES["api"]["environment"]) | set(SERVICES["api"]["secrets"])
    assert given <= known, given - known
    assert {"DATABASE_URL", "DATABASE_PLATFORM_URL", "REDIS_URL", "QDRANT_URL", "ENGINE_URL", "EMBEDDINGS_URL"} <= given


def test_the_script_makes_every_secret_once_and_consistently(tmp_path: Path) -> None:
    script = tmp_path / "make-secrets.sh"
    script.write_text((ROOT / "infra" / "docker" / "make-secrets.sh").read_text(encoding="utf-8"), encoding="utf-8")
    runs = []
    for _ in range(2):
        subprocess.run(["sh", str(script)], check=True, capture_output=True, timeout=30)
        runs.append({path.name: path.read_text(encoding="utf-8").strip() for path in (tmp_path / "secrets").iterdir()})
    made = runs[0]
    assert runs[1] == made
    assert {Path(entry["file"]).name for entry in COMPOSE["secrets"].values()} <= made.keys()
    assert all(made.values())
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    roles = yaml.safe_load(made["roles.json"])
    assert roles["fullread_app"] in made["DATABASE_URL"]
    assert roles["fullread_owner"] in made["DATABASE_OWNER_URL"]
    assert made["VALKEY_PASSWORD"] in made["REDIS_URL"]
    assert yaml.safe_load(made["qdrant.yaml"])["service"]["api_key"] == made["QDRANT_API_KEY"]
    assert len(set(roles.values())) == len(roles)
    settings = Settings.model_validate(
        {name: made[name] for name in ("DATABASE_URL", "DATABASE_PLATFORM_URL", "FULLREAD_SECRET_KEY")}
    )
    settings.require("database_url", "database_platform_url", "secret_key")
