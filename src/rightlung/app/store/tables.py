"""The tables of the store. A change here needs a migration in ``migrations/versions``."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, LargeBinary, String, Text, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

NAME, KEY = 80, 64


def now() -> str:
    """Return the time, UTC, as ISO 8601 text, which sorts and reads the same in every database."""
    return time_text(datetime.now(UTC))


def time_text(time: datetime) -> str:
    """Return a time in UTC as `now` writes it."""
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def new_id() -> str:
    """Return a new random id."""
    return secrets.token_hex(16)


def is_id(text: str) -> bool:
    """Whether a text has the form of an id; others are not looked up."""
    return len(text) == 32 and set(text) <= set("0123456789abcdef")


class Base(DeclarativeBase):
    """Base of the tables."""

    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON, str: Text}  # noqa: RUF012


class User(Base):
    """An account."""

    __tablename__ = "users"
    name: Mapped[str] = mapped_column(String(NAME), primary_key=True)
    password_hash: Mapped[str]
    role: Mapped[str] = mapped_column(String(16))
    created: Mapped[str] = mapped_column(String(32), default=now)


class LoginSession(Base):
    """A login. Only a hash of the cookie is stored."""

    __tablename__ = "sessions"
    token_hash: Mapped[str] = mapped_column(String(64), primary_key=True)
    user_name: Mapped[str] = mapped_column(ForeignKey("users.name", ondelete="CASCADE"), index=True)
    expires: Mapped[str] = mapped_column(String(32))


class Annotation(Base):
    """A box or mask that a person drew."""

    __tablename__ = "annotations"
    __table_args__ = (UniqueConstraint("author", "save_key"),)
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    source: Mapped[str]
    study: Mapped[str]
    study_key: Mapped[str] = mapped_column(String(1_000), index=True)
    label: Mapped[str]
    text: Mapped[str | None] = mapped_column(Text)
    box: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    mask: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    author: Mapped[str] = mapped_column(String(NAME))
    created: Mapped[str] = mapped_column(String(32), default=now)
    updated: Mapped[str] = mapped_column(String(32), default=now)
    version: Mapped[int] = mapped_column(default=1)
    save_key: Mapped[str] = mapped_column(String(KEY))


class KeptImage(Base):
    """The pixels of an uploaded image, as 16-bit PNG, kept because somebody asked for it."""

    __tablename__ = "kept_images"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    owner: Mapped[str] = mapped_column(String(NAME), index=True)
    created: Mapped[str] = mapped_column(String(32), default=now)
    png: Mapped[bytes] = mapped_column(LargeBinary)


class ReaderStudy(Base):
    """A reader study. ``codes`` are the models by blinded code; ``settings`` what its owner chose."""

    __tablename__ = "reader_studies"
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    title: Mapped[str]
    created: Mapped[str] = mapped_column(String(32), default=now)
    owner: Mapped[str] = mapped_column(String(NAME))
    source: Mapped[str]
    codes: Mapped[dict[str, Any]]
    annotators: Mapped[list[Any]]
    questions: Mapped[list[Any]]
    settings: Mapped[dict[str, Any]]
    items: Mapped[list[Item]] = relationship(back_populates="reader_study", cascade="all, delete-orphan")


class Item(Base):
    """One image, for one annotator. ``codes`` has the models in the order of the aliases A, B…, drawn for this item."""

    __tablename__ = "items"
    __table_args__ = (UniqueConstraint("reader_study_id", "annotator", "place", "round"),)
    id: Mapped[str] = mapped_column(String(32), primary_key=True, default=new_id)
    reader_study_id: Mapped[str] = mapped_column(ForeignKey("reader_studies.id", ondelete="CASCADE"))
    annotator: Mapped[str] = mapped_column(String(NAME))
    place: Mapped[int]
    round: Mapped[int] = mapped_column(default=0)
    study: Mapped[str]
    phrase: Mapped[str] = mapped_column(String(32), default="")
    prompt: Mapped[str | None] = mapped_column(Text)
    codes: Mapped[list[Any]]
    reader_study: Mapped[ReaderStudy] = relationship(back_populates="items")
    answers: Mapped[list[Answer]] = relationship(back_populates="item", cascade="all, delete-orphan")


class Answer(Base):
    """The saved ratings of one model's heatmap."""

    __tablename__ = "answers"
    item_id: Mapped[str] = mapped_column(ForeignKey("items.id", ondelete="CASCADE"), primary_key=True)
    code: Mapped[str] = mapped_column(String(8), primary_key=True)
    recall: Mapped[int]
    precision: Mapped[int]
    intuitiveness: Mapped[int]
    comment: Mapped[str]
    answers: Mapped[dict[str, Any]]
    version: Mapped[int]
    save_key: Mapped[str] = mapped_column(String(KEY))
    saved_at: Mapped[str] = mapped_column(String(32))
    item: Mapped[Item] = relationship(back_populates="answers")
