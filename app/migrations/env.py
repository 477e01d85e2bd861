"""Alembic environment: connects as fullread_owner, with a lock timeout so that a migration never blocks traffic."""

from alembic import context
from sqlalchemy import create_engine, text

from app.core.db import Base


def run() -> None:
    """Run the migrations on the URL that `app.bootstrap` put into the configuration."""
    url = context.config.get_main_option("sqlalchemy.url")
    if not url:
        raise RuntimeError("DATABASE_OWNER_URL is not set: migrations run as fullread_owner")
    engine = create_engine(url, connect_args={"connect_timeout": 5, "application_name": "fullread-migrations"})
    with engine.connect() as connection:
        connection.execute(text("set lock_timeout = '3s'"))
        connection.commit()
        context.configure(connection=connection, target_metadata=Base.metadata)
        with context.begin_transaction():
            context.run_migrations()
    engine.dispose()


run()
