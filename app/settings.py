"""One frozen, typed settings tree, read once from the environment. Nothing else reads `os.environ`."""

import hashlib
from functools import lru_cache
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


def instance_of(secret_key: str) -> str:
    """The public name of an installation, derived from its secret key: tells two of them on one machine apart."""
    return hashlib.sha256(b"fullread instance:" + secret_key.encode()).hexdigest()[:16]


class SettingsError(Exception):
    """A setting is missing or wrong; the message names the variable and the fix."""


class Settings(BaseSettings):
    """Where the services are and how much of them we take. Each field's environment variable is its alias."""

    model_config = SettingsConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    # rows, rights, jobs
    database_url: str = Field(default="", alias="DATABASE_URL", description="role fullread_app")
    database_platform_url: str = Field(default="", alias="DATABASE_PLATFORM_URL", description="role fullread_platform")
    database_owner_url: str = Field(default="", alias="DATABASE_OWNER_URL", description="fullread_owner, migrations")
    # broker
    redis_url: str = Field(default="", alias="REDIS_URL")
    # vectors
    qdrant_url: str = Field(default="", alias="QDRANT_URL")
    qdrant_api_key: SecretStr = Field(default=SecretStr(""), alias="QDRANT_API_KEY")
    # generation
    engine_url: str = Field(default="", alias="ENGINE_URL", description="OpenAI-compatible base, without /v1")
    engine_api_key: SecretStr = Field(default=SecretStr(""), alias="ENGINE_API_KEY")
    engine_model: str = Field(default="smollm2-135m-instruct", alias="ENGINE_MODEL")
    engine_window_tokens: int = Field(default=8192, alias="ENGINE_WINDOW_TOKENS", ge=512)
    engine_slots: int = Field(default=2, alias="ENGINE_SLOTS", ge=1, description="concurrent requests")
    engine_answer_form: Literal["extractive", "generative"] = Field(default="extractive", alias="ENGINE_ANSWER_FORM")
    engine_model_digest: str = Field(
        default="", alias="ENGINE_MODEL_DIGEST", max_length=200, description="names the weights in run records"
    )
    engine_prefill_tokens_per_s: float = Field(
        default=300.0, alias="ENGINE_PREFILL_TOKENS_PER_S", gt=0, description="reading speed, for estimates only"
    )
    engine_wait_s: float = Field(default=20.0, alias="ENGINE_WAIT_S", ge=0, description="longest wait for a seat")
    # embeddings
    embeddings_url: str = Field(default="", alias="EMBEDDINGS_URL", description="OpenAI-compatible base, without /v1")
    embeddings_api_key: SecretStr = Field(default=SecretStr(""), alias="EMBEDDINGS_API_KEY")
    embeddings_model: str = Field(default="multilingual-e5-small-int8", alias="EMBEDDINGS_MODEL")
    embeddings_dimensions: int = Field(default=384, alias="EMBEDDINGS_DIMENSIONS", ge=8)
    embeddings_slots: int = Field(default=6, alias="EMBEDDINGS_SLOTS", ge=1)
    # files
    blob_dir: Path = Field(default=Path("fullread-data/blobs"), alias="FULLREAD_BLOB_DIR")
    models_dir: Path = Field(default=Path("~/.cache/fullread/models"), alias="FULLREAD_MODELS_DIR")
    # web
    secret_key: SecretStr = Field(default=SecretStr(""), alias="FULLREAD_SECRET_KEY")
    public_url: str = Field(default="http://127.0.0.1:8080", alias="FULLREAD_PUBLIC_URL")
    max_upload_bytes: int = Field(default=512 * 1024 * 1024, alias="FULLREAD_MAX_UPLOAD_BYTES", ge=1)
    # jobs
    job_lease_s: float = Field(default=12.0, alias="FULLREAD_JOB_LEASE_S", ge=2)
    job_max_attempts: int = Field(default=6, alias="FULLREAD_JOB_MAX_ATTEMPTS", ge=1)
    # retrieval
    context_tokens: int = Field(default=1400, alias="FULLREAD_CONTEXT_TOKENS", ge=200, description="prompt budget")
    full_pass_tokens: int = Field(
        default=1_000_000,
        alias="FULLREAD_FULL_PASS_TOKENS",
        ge=1000,
        description="most tokens that one full pass reads; pages after them are named as not read",
    )
    dense_weight: float = Field(default=0.7, alias="FULLREAD_DENSE_WEIGHT", ge=0, le=1)
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", alias="FULLREAD_LOG_LEVEL")

    @model_validator(mode="after")
    def _services_belong_together(self) -> Self:
        if self.database_url and not self.database_platform_url:
            raise ValueError("DATABASE_PLATFORM_URL is not set: give it the fullread_platform role")
        if len(self.secret_key.get_secret_value()) not in (0, *range(32, 1025)):
            raise ValueError("FULLREAD_SECRET_KEY is too short: use at least 32 random characters")
        return self

    def require(self, *names: str) -> None:
        """Fail at start, naming the variable, when a service that this process needs has no address."""
        for name in names:
            value = getattr(self, name)
            text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
            if not text:
                alias = type(self).model_fields[name].alias
                raise SettingsError(
                    f"{alias} is not set. `fullread up` sets it for the local stack; elsewhere set it yourself."
                )


@lru_cache(maxsize=1)
def load() -> Settings:
    """Read the environment once. Raises SettingsError with the variable's name and the fix."""
    try:
        return Settings()
    except ValidationError as error:
        lines = [f"{'.'.join(str(p) for p in e['loc'])} {e['msg']}" for e in error.errors()]
        raise SettingsError("; ".join(lines)) from error
