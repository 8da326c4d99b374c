"""The first tables."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _column(name: str, kind: Any = sa.Text, *rest: Any, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, kind() if isinstance(kind, type) else kind, *rest, **{"nullable": False} | options)


def _texts(**lengths: int) -> list[sa.Column[Any]]:
    return [_column(name, sa.String(length)) for name, length in lengths.items()]


def upgrade() -> None:
    """Create the tables."""
    table, key, json = op.create_table, {"primary_key": True}, sa.JSON
    user, study, item = (
        sa.ForeignKey(to, ondelete="CASCADE") for to in ("users.name", "reader_studies.id", "items.id")
    )
    table("users", _column("name", sa.String(80), **key), _column("password_hash"), *_texts(role=16, created=32))
    table(
        "sessions", _column("token_hash", sa.String(64), **key), _column("user_name", sa.String(80), user, index=True),
        *_texts(expires=32),
    )  # fmt: skip
    table(
        "annotations", _column("id", sa.String(32), **key), _column("source"), _column("study"),
        _column("study_key", sa.String(1_000), index=True), _column("label"), _column("text", nullable=True),
        _column("box", json, nullable=True), _column("mask", json, nullable=True),
        *_texts(author=80, created=32, updated=32), _column("version", sa.Integer), *_texts(save_key=64),
        sa.UniqueConstraint("author", "save_key"),
    )  # fmt: skip
    table(
        "kept_images", _column("id", sa.String(32), **key), _column("owner", sa.String(80), index=True),
        *_texts(created=32), _column("png", sa.LargeBinary),
    )  # fmt: skip
    table(
        "reader_studies", _column("id", sa.String(32), **key), _column("title"), *_texts(created=32, owner=80),
        _column("source"), *(_column(name, json) for name in ("codes", "annotators", "questions", "settings")),
    )  # fmt: skip
    table(
        "items", _column("id", sa.String(32), **key), _column("reader_study_id", sa.String(32), study),
        *_texts(annotator=80), _column("place", sa.Integer), _column("round", sa.Integer), _column("study"),
        *_texts(phrase=32), _column("prompt", nullable=True), _column("codes", json),
        sa.UniqueConstraint("reader_study_id", "annotator", "place", "round"),
    )  # fmt: skip
    table(
        "answers", _column("item_id", sa.String(32), item, **key), _column("code", sa.String(8), **key),
        *(_column(name, sa.Integer) for name in ("recall", "precision", "intuitiveness")), _column("comment"),
        _column("answers", json), _column("version", sa.Integer), *_texts(save_key=64, saved_at=32),
    )  # fmt: skip


def downgrade() -> None:
    """Drop the tables."""
    for name in ("answers", "items", "reader_studies", "kept_images", "annotations", "sessions", "users"):
        op.drop_table(name)
