"""Reader studies in the store: create, items in each annotator's order, prompts, answers ("Wrong Lung", section A.7).

`rightlung.judgements` plans and blinds. An item is one image for one annotator; the aliases A, B… of its models are
those of a row of a Latin square, drawn anew for each item.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session, selectinload

from rightlung.app.accounts import Caller
from rightlung.app.context import Context
from rightlung.app.errors import AppError, not_found
from rightlung.app.library import key_of
from rightlung.app.questions import custom_questions, standard_questions
from rightlung.app.requests import AnswerRequest, PromptRequest, ReaderStudyRequest
from rightlung.app.store.tables import Answer, Item, ReaderStudy, is_id, new_id, now, time_text
from rightlung.core import InputError
from rightlung.core.keyed import text_generator
from rightlung.judgements import blind, plan
from rightlung.judgements.judgement import CUSTOM, RATINGS, same_words
from rightlung.judgements.measures import JudgedInstance
from rightlung.predictions.prediction import phrase_query

ALIASES = "ABCDEFGH"
WAITED = timedelta(days=30)
"""The longest that an answer may have waited in a browser."""


def create(app: Context, who: Caller, given: ReaderStudyRequest) -> ReaderStudy:
    """Plan a reader study on the source and save it with all its items."""
    for name in given.models:
        app.shelf.find(name, "ground")
    if app.library.indexing:
        raise AppError(503, "busy", "the list of studies is still being read; try again in a moment", retry_after=2)
    if app.accounts.required:
        known = {user["name"] for user in app.accounts.listed()}
        if unknown := [name for name in given.annotators if name not in known]:
            raise AppError(422, "invalid", f"annotators: there is no account {unknown[0]!r}", "annotators")
    hidden = blind(given.models, given.seed)
    instances = list(_candidates(app, given))
    try:
        planned = plan(instances, hidden.codes, given.annotators, given.seed, given.per_annotator, given.overlap)
    except InputError as error:
        message = str(error).replace("--per-annotator", "per_annotator").replace("--overlap", "overlap")
        raise AppError(422, "invalid", message) from None
    row = ReaderStudy(
        id=new_id(), title=given.title, owner=who.name, source=app.library.source.address, codes=dict(hidden.models),
        annotators=sorted(given.annotators), questions=custom_questions(given.questions),
        settings=given.model_dump(include={"mode", "seed", "custom_prompts", "show_truth", "abnormal"}),
    )  # fmt: skip
    items: dict[tuple[str, str, str], Item] = {}
    for one in planned:
        key = (one.annotator, *one.instance.key)
        if key not in items:
            fixed = given.mode == "planned"
            items[key] = Item(
                id=new_id(), reader_study_id=row.id, annotator=one.annotator, place=one.order, round=0,
                study=one.instance.study, phrase=one.instance.query if fixed else CUSTOM,
                prompt=one.instance.text if fixed else None, codes=[],
            )  # fmt: skip
        items[key].codes = [*items[key].codes, one.model]
    with app.store.writing() as session:
        session.add(row)
        session.add_all(items.values())
    return row


def _candidates(app: Context, given: ReaderStudyRequest) -> list[JudgedInstance]:
    """Return all phrases or, if the reader chooses the sentence, one entry for each image."""
    found = []
    for phrases in app.library.instances.values():
        wanted = [one for one in phrases if one.abnormal or not given.abnormal]
        found += wanted if given.mode == "planned" else wanted[:1]
    return found


def study_json(app: Context, session: Session, row: ReaderStudy, who: Caller) -> dict[str, Any]:
    """Return a reader study for a person. Who still has items to judge does not learn the models, nor the seed."""
    done, total = progress_of(session, row.id, who.name)
    shown = who.role == "owner" and done == total
    return {
        "id": row.id,
        "title": row.title,
        "created": row.created,
        "source": row.source if who.role == "owner" else None,
        "available": row.source == app.library.source.address and set(row.codes.values()) <= set(app.shelf.models),
        "mode": row.settings["mode"],
        "seed": row.settings["seed"] if shown else None,
        "custom_prompts": row.settings["custom_prompts"],
        "show_truth": row.settings["show_truth"],
        "annotators": row.annotators if who.role == "owner" else [who.name],
        "models": sorted(row.codes.values()) if shown else None,
        "model_count": len(row.codes),
        "questions": [*standard_questions(), *row.questions],
        "progress": {"done": done, "total": total},
    }


def progress_of(session: Session, reader_study: str, annotator: str) -> tuple[int, int]:
    """Return the number of finished items of an annotator, and of all of theirs."""
    items = items_of(session, reader_study, annotator)
    return sum(is_done(item) for item in items), len(items)


def is_done(item: Item) -> bool:
    """Whether all maps of an item are judged."""
    return len(item.answers) == len(item.codes)


def check_judged(app: Context, study: str, who: Caller) -> None:
    """Raise an error if the person still has to judge this image: a model's open answer would end the blinding."""
    query = select(Item).join(ReaderStudy).where(Item.annotator == who.name, Item.study == study)
    query = query.where(ReaderStudy.source == app.library.source.address).options(selectinload(Item.answers))
    with app.store.reading() as session:
        title = next((one.reader_study.title for one in session.scalars(query) if not is_done(one)), None)
    if title is not None:
        message = f"you still have to judge this image in the reader study {title!r}; until then, no model answers here"
        raise AppError(409, "blinded", message)


def find(session: Session, reader_study: str, who: Caller) -> ReaderStudy:
    """Return a reader study that a person may see: an owner, or one of its annotators."""
    row = session.get(ReaderStudy, reader_study) if is_id(reader_study) else None
    if row is None or (who.role != "owner" and who.name not in row.annotators):
        raise not_found("reader study of yours with this id", "unknown-reader-study")
    return row


def find_item(session: Session, reader_study: str, item: str, who: Caller, change: bool = False) -> Item:
    """Return an item of the person; to ``change`` it, nobody else may at the same time."""
    found = session.get(Item, item, with_for_update=change or None) if is_id(item) else None
    if found is None or found.reader_study_id != reader_study or found.annotator != who.name:
        raise not_found("item of yours with this id", "unknown-item")
    return found


def items_of(session: Session, reader_study: str, annotator: str) -> Sequence[Item]:
    """Return the items of an annotator in their order, custom prompts after the image's first."""
    query = select(Item).where(Item.reader_study_id == reader_study, Item.annotator == annotator)
    query = query.options(selectinload(Item.answers))
    return session.scalars(query.order_by(Item.place, Item.round)).all()


def item_json(item: Item, place: int) -> dict[str, Any]:
    """Return the row of an item."""
    state = "open" if item.prompt is None else "done" if is_done(item) else "chosen"
    return {
        "id": item.id,
        "place": place,
        "study": key_of(item.study),
        "prompt": item.prompt,
        "custom": item.prompt is not None and item.phrase == CUSTOM,
        "state": state,
        "answered": len(item.answers),
        "models": len(item.codes),
    }


def choose(app: Context, session: Session, item: Item, given: PromptRequest) -> None:
    """Fix the prompt of an item: a sentence of the report, or one's own words. It cannot be changed afterwards."""
    phrases = app.library.by_id(item.study).study.phrases
    if given.phrase is not None:
        if given.phrase >= len(phrases):
            raise AppError(422, "invalid", f"phrase: the study has {len(phrases)} sentences", "phrase")
        phrase, prompt = phrase_query(given.phrase), phrases[given.phrase].text
    else:
        _check_custom_allowed(item)
        phrase, prompt = CUSTOM, " ".join(str(given.text).split())
    if item.prompt is not None:
        if (item.phrase, item.prompt) == (phrase, prompt):
            return
        raise AppError(409, "already-chosen", "the sentence of this item is chosen, and its maps may have been seen")
    _check_new(session, item, phrase, prompt)
    item.phrase, item.prompt = phrase, prompt


def add_custom(session: Session, item: Item, text: str) -> Item:
    """Return a further item on the same image with the reader's own prompt; the models get new aliases."""
    _check_custom_allowed(item)
    prompt = " ".join(text.split())
    _check_new(session, item, CUSTOM, prompt)
    last = session.scalar(
        select(func.max(Item.round)).where(
            Item.reader_study_id == item.reader_study_id, Item.annotator == item.annotator, Item.place == item.place
        )
    )
    number = (last or 0) + 1
    shuffle = text_generator(item.reader_study.settings["seed"], "aliases", item.annotator, item.place, number)
    codes = [item.codes[place] for place in shuffle.permutation(len(item.codes)).tolist()]
    added = Item(
        id=new_id(), reader_study_id=item.reader_study_id, annotator=item.annotator, place=item.place, round=number,
        study=item.study, phrase=CUSTOM, prompt=prompt, codes=codes,
    )  # fmt: skip
    session.add(added)
    return added


def _check_custom_allowed(item: Item) -> None:
    if not item.reader_study.settings["custom_prompts"]:
        raise AppError(409, "conflict", "this reader study has no prompts of one's own")


def _check_new(session: Session, item: Item, phrase: str, prompt: str) -> None:
    """Raise an error if the annotator has the same prompt on the same image already: only one could count."""
    for other in items_of(session, item.reader_study_id, item.annotator):
        if other.study != item.study or other.prompt is None or other.id == item.id:
            continue
        if (other.phrase, same_words(other.prompt)) == (phrase, same_words(prompt)):
            raise AppError(409, "conflict", "you have judged this prompt on this image already")


def save(session: Session, item: Item, alias: str, given: AnswerRequest, custom: dict[str, Any]) -> Answer:
    """Save an answer; the same save again changes nothing, and a newer answer is not overwritten."""
    if item.prompt is None:
        raise AppError(409, "not-chosen", "choose the sentence before any map is judged")
    code = code_of(item, alias)
    answer = session.get(Answer, (item.id, code), with_for_update=True)
    if answer is not None and answer.save_key == given.key:
        return answer
    if (None if answer is None else answer.version) != given.version:
        current = None if answer is None else answer_json(answer)
        raise AppError(409, "conflict", "this answer was changed elsewhere since you opened it", current=current)
    if answer is None:
        answer = Answer(item_id=item.id, code=code, version=0)
        session.add(answer)
    for name in RATINGS:
        setattr(answer, name, getattr(given, name))
    answer.comment, answer.answers, answer.save_key = given.comment, custom, given.key
    answer.version, answer.saved_at = answer.version + 1, _judged_at(given)
    return answer


def _judged_at(given: AnswerRequest) -> str:
    """Return when an answer was given: the page's time, or the present if its clock cannot be right."""
    present = datetime.now(UTC)
    if given.judged_at is not None and present - WAITED <= given.judged_at <= present:
        return time_text(given.judged_at.astimezone(UTC))
    return now()


def undo(session: Session, reader_study: str, who: Caller) -> tuple[Item, str, dict[str, Any]]:
    """Remove the latest answer of a person; return its item, alias and values."""
    latest = session.execute(
        select(Answer, Item)
        .join(Item)
        .where(Item.reader_study_id == reader_study, Item.annotator == who.name)
        .order_by(Answer.saved_at.desc(), Item.place.desc(), Item.round.desc())
        .limit(1)
    ).first()
    if latest is None:
        raise AppError(409, "no-change", "there is no answer to undo")
    answer, item = latest
    removed = answer_json(answer)
    session.delete(answer)
    return item, ALIASES[item.codes.index(answer.code)], removed


def code_of(item: Item, alias: str) -> str:
    """Return the blinded code behind an alias of an item."""
    place = ALIASES.find(alias) if len(alias) == 1 else -1
    if not 0 <= place < len(item.codes):
        raise not_found(f"heatmap {alias[:8]!r} in this item", "unknown-item")
    return str(item.codes[place])


def answer_json(answer: Answer) -> dict[str, Any]:
    """Return a saved answer."""
    names = (*RATINGS, "comment", "answers", "version", "saved_at")
    return {name: getattr(answer, name) for name in names}
