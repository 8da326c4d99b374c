"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "annotations",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("study_key", sa.String(length=1000), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=True),
        sa.Column("box", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("mask", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("author", sa.String(length=80), nullable=False),
        sa.Column("created", sa.String(length=32), nullable=False),
        sa.Column("updated", sa.String(length=32), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("save_key", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("author", "save_key"),
    )
    with op.batch_alter_table("annotations", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_annotations_study_key"), ["study_key"], unique=False)

    op.create_table(
        "kept_images",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("owner", sa.String(length=80), nullable=False),
        sa.Column("created", sa.String(length=32), nullable=False),
        sa.Column("png", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    with op.batch_alter_table("kept_images", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_kept_images_owner"), ["owner"], unique=False)

    op.create_table(
        "reader_studies",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("created", sa.String(length=32), nullable=False),
        sa.Column("owner", sa.String(length=80), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("codes", sa.JSON(), nullable=False),
        sa.Column("annotators", sa.JSON(), nullable=False),
        sa.Column("questions", sa.JSON(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "users",
        sa.Column("name", sa.String(length=80), nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("created", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "items",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("reader_study_id", sa.String(length=32), nullable=False),
        sa.Column("annotator", sa.String(length=80), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("phrase", sa.String(length=32), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=True),
        sa.Column("codes", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["reader_study_id"], ["reader_studies.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("reader_study_id", "annotator", "place", "round"),
    )
    op.create_table(
        "sessions",
        sa.Column("token_hash", sa.String(length=64), nullable=False),
        sa.Column("user_name", sa.String(length=80), nullable=False),
        sa.Column("expires", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["user_name"], ["users.name"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("token_hash"),
    )
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_sessions_user_name"), ["user_name"], unique=False)

    op.create_table(
        "answers",
        sa.Column("item_id", sa.String(length=32), nullable=False),
        sa.Column("code", sa.String(length=8), nullable=False),
        sa.Column("recall", sa.Integer(), nullable=False),
        sa.Column("precision", sa.Integer(), nullable=False),
        sa.Column("intuitiveness", sa.Integer(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.Column("answers", sa.JSON(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("save_key", sa.String(length=64), nullable=False),
        sa.Column("saved_at", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("item_id", "code"),
    )


def downgrade() -> None:
    """Drop the tables."""
    op.drop_table("answers")
    with op.batch_alter_table("sessions", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_sessions_user_name"))

    op.drop_table("sessions")
    op.drop_table("items")
    op.drop_table("users")
    op.drop_table("reader_studies")
    with op.batch_alter_table("kept_images", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_kept_images_owner"))

    op.drop_table("kept_images")
    with op.batch_alter_table("annotations", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_annotations_study_key"))

    op.drop_table("annotations")
