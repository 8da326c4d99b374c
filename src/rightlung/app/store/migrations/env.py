"""Alembic: run the migrations on the connection that `Store` opened."""

from __future__ import annotations

from alembic import context

from rightlung.app.store.tables import Base

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
