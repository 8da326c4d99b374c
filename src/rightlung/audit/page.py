"""The page of an audit: one HTML file that needs no network, no script and no mouse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from rightlung import NOT_A_MEDICAL_DEVICE
from rightlung.audit import plots
from rightlung.audit.aggregate import FEW_PATIENTS, HEADLINE
from rightlung.audit.gallery import BOXES_LABEL, Case, Gallery
from rightlung.audit.markup import Markup, element, joined
from rightlung.audit.summary import left_out_note, metric_name, number, sentences, span, verdict
from rightlung.audit.tables import beside_row, cell, key, slug, table

_GROUP_TITLES = {
    "finding": "By finding",
    "size": "By size of the target",
    "side": "By side of the target",
    "side_named": "By the side that the words name",
    "region": "By region",
    "kind": "By kind of target",
    "polarity": "By polarity",
}
_GROUP_NOTES = {
    "size": "Small: under 1 % of the image's area. Large: 5 % or more.",
    "side": "Patient's side, from the target's pixels. Midline: it reaches across the middle.",
    "region": "As the source names it; a phrase counts in each of its regions.",
    "finding": "A phrase counts for each finding it asserts.",
}
_CONDITION_TITLES = {
    "swap-sides": "Left and right swapped in the words",
    "exchange-image": "Another patient's image shown",
    "random-sentence": "Another patient's sentence asked",
    "synthetic": "The phrase as a sentence made by rules",
    "synthetic-swapped": "Such a sentence with other findings of the same places",
}


def render_page(result: Mapping[str, Any], gallery: Gallery, next_steps: Sequence[str] = ()) -> str:
    """Return the page of an audit's result (see `run.audit`) as HTML."""
    protocol = result["protocol"]
    title = f"Audit of {result['model'] or 'a model'}"
    sections = [
        ("summary", "What was found", _summary(result)),
        ("overall", "Beside the image-blind prior", _overall(result)),
        ("sides", "Left and right", _sides(result)),
        ("conditions", "When the question is changed", list(_conditions(result["conditions"]))),
        ("groups", "By group", list(_groups(result["groups"]))),
        ("abstention", "Abstention", _abstention(result)),
        ("cases", "Best and worst cases", _cases(gallery)),
        ("protocol", "Protocol", _protocol(result)),
        ("problems", "What was left out", _problems(result)),
        ("next", "What to try next", _next(next_steps)),
    ]
    shown = [(name, heading, content) for name, heading, content in sections if content]
    links = [element("li", element("a", heading, href=f"#{name}")) for name, heading, _ in shown]
    body = [
        element("a", "Skip to what was found", href="#summary", class_="skip"),
        element(
            "header",
            element("h1", title),
            element(
                "p",
                f"Source {result['source']}; {result['counts']['phrases']:,} phrases of "
                f"{result['counts']['patients']:,} patients in {result['counts']['studies']:,} studies. "
                f"Protocol {protocol['hash']}.",
                class_="meta",
            ),
            element("p", NOT_A_MEDICAL_DEVICE, class_="note"),
        ),
        element("nav", element("ul", links), aria_label="Sections"),
        element(
            "main",
            [
                element("section", element("h2", heading, id=name), content, aria_labelledby=name)
                for name, heading, content in shown
            ],
        ),
        element(
            "footer",
            element(
                "p",
                f"rightlung {result['version']}, protocol {protocol['hash']}. {NOT_A_MEDICAL_DEVICE}",
                class_="meta",
            ),
        ),
    ]
    style = files("rightlung.audit").joinpath("style.css").read_text(encoding="utf-8")
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(style)),
    ]
    return "<!doctype html>\n" + element("html", element("head", head), element("body", body), lang="en") + "\n"


def _summary(result: Mapping[str, Any]) -> Markup:
    return element("ul", [element("li", sentence) for sentence in sentences(result)], class_="summary")


def _hash_note(result: Mapping[str, Any]) -> str:
    protocol = result["protocol"]
    return f"{100 * protocol['level']:g} % intervals, patients resampled; protocol {protocol['hash']}."


def _overall(result: Mapping[str, Any]) -> list[Markup] | None:
    if not result["overall"]:
        return None
    first = next(iter(result["overall"].values()))["model"]
    rows = [
        beside_row(metric_name(name), value, counted=False)
        for name, value in sorted(
            result["overall"].items(), key=lambda item: HEADLINE.index(item[0]) if item[0] in HEADLINE else 99
        )
    ]
    caption = f"Mean over {first['phrases']:,} phrases of {first['patients']:,} patients. {_hash_note(result)}"
    introduction = (
        "The prior is the mean target of other patients' phrases that name the same finding, side and zone. It reads "
        "the words and never looks at the image: only what exceeds it is owed to the image. AUROC flatters, since most "
        "of an image is obviously not the target."
    )
    header = ["measure", plots.axis(), "model", "prior", "model − prior"]
    return [element("p", introduction), key(), table("overall", caption, header, rows)]


def _sides(result: Mapping[str, Any]) -> list[Markup] | None:
    sides = result["sides"]
    titles = {"named": "the words name it", "from_image": "no word gives it away: only the image can tell"}
    rows = [beside_row(titles[name], value) for name in titles if (value := sides[name]) is not None]
    if not rows:
        return None
    caption = f"Share of phrases about a finding on one side whose peak lies on that side. {_hash_note(result)}"
    header = ["the finding's side", plots.axis(), "phrases", "patients", "model", "prior", "model − prior"]
    note = left_out_note(sides["left_out"])
    return [
        table("sides", caption, header, rows),
        element(
            "p", f"{note[0].upper()}{note[1:]}. What the image tells is the difference from the prior.", class_="small"
        ),
    ]


def _conditions(conditions: Mapping[str, Any]) -> Iterator[Markup]:
    for place, (name, found) in enumerate(conditions.items()):
        part = f"{place}-{slug(name)}"  # two names can have the same slug
        rows = [
            element(
                "tr",
                element("th", metric_name(metric), scope="row"),
                element("td", plots.change(change)),
                cell(f"{change['phrases']:,}"),
                cell(span(found["values"][metric]["before"])),
                cell(span(found["values"][metric]["after"])),
                cell(verdict(change)),
            )
            for metric, change in found["change"].items()
        ]
        yield element("h3", _CONDITION_TITLES.get(name, f"Condition {name}"))
        if not rows:
            yield element("p", "No question was asked both ways.")
            continue
        header = ["measure", plots.axis(-1, 1), "phrases", "as asked", "changed", "difference, paired"]
        yield table(f"condition-{part}", f"{found['questions']:,} questions asked both ways.", header, rows)
        if found["moved"]:
            yield _moved(found["moved"], part)
        if found.get("follows_words"):
            share = span(found["follows_words"])
            yield element("p", f"Share of one-sided phrases whose peak lies on the side now named: {share}.")
        if found["beside_prior"]:
            rows = [
                beside_row(metric_name(metric), value, counted=False) for metric, value in found["beside_prior"].items()
            ]
            caption = "What is left, beside the prior that reads the same words."
            yield table(f"left-{part}", caption, ["measure", plots.axis(), "changed", "prior", "changed − prior"], rows)


def _moved(moved: Mapping[str, Any], part: str) -> Markup:
    rows = [
        element(
            "tr",
            element("th", metric_name(name), scope="row"),
            element("td", plots.beside({"model": value, "prior": None})),
            cell(f"{value['phrases']:,}"),
            cell(f"{value['patients']:,}"),
            cell(span(value)),
        )
        for name, value in moved.items()
    ]
    caption = (
        "How far the answers move, whatever the truth. Mass: the share that lies elsewhere, 0 for the same map, 1 for "
        "maps that nowhere overlap. Peak: its way in fractions of the image's width and height."
    )
    return table(f"moved-{part}", caption, ["measure", plots.axis(), "phrases", "patients", "mean"], rows)


def _groups(groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Markup]:
    for grouping, title in _GROUP_TITLES.items():
        found = [group for group in groups[grouping] if group["metrics"]]
        if not found:
            continue
        yield element("h3", title)
        for metric in HEADLINE:
            rows = [_group_row(group, metric) for group in found]
            note = _GROUP_NOTES.get(grouping, "")
            caption = f"{title}: {metric_name(metric)}. {note}".strip()
            header = [title.removeprefix("By "), plots.axis(), "phrases", "patients", "model", "prior", "model − prior"]
            found_table = table(f"{grouping}-{metric}", caption, header, rows)
            if metric == HEADLINE[0]:
                yield found_table
            else:
                yield element("details", element("summary", f"{title}: {metric_name(metric)}"), found_table)
    yield element(
        "p",
        f"* fewer than {FEW_PATIENTS} patients: the interval means little, and no difference is called shown. "
        "Elsewhere it is where it survives Holm's adjustment for all the other rows of its table.",
        class_="small",
    )


def _group_row(group: Mapping[str, Any], metric: str) -> Markup:
    name = group["name"] + (" *" if group["few"] else "")
    return beside_row(name, group["metrics"][metric], few=group["few"])


def _abstention(result: Mapping[str, Any]) -> list[Markup]:
    found = result["abstention"]
    if not found["given"]:
        return [element("p", "The predictions give no abstention.")]
    if not found["ever"]:
        return [element("p", "The model never abstains: its abstention is zero throughout.")]
    rows = [
        element(
            "tr",
            element("th", group["name"], scope="row"),
            element("td", plots.beside({"model": group["abstention"], "prior": None})),
            cell(f"{group['phrases']:,}"),
            cell(f"{group['patients']:,}"),
            cell(span(group["abstention"])),
        )
        for group in result["groups"]["polarity"]
    ]
    header = ["polarity of the phrase", plots.axis(), "phrases", "patients", "abstention"]
    content = [table("abstention", f"Mean abstention. {_hash_note(result)}", header, rows)]
    if found["auroc"] is not None:
        said = f"AUROC of the abstention for telling negated phrases from asserted ones: {span(found['auroc'])}. "
        caveat = "The words alone can give a negation away; the change under another image says more."
        content.append(element("p", said + caveat))
    return content


def _cases(gallery: Gallery) -> list[Markup] | None:
    content = []
    for title, cases in (("Best", gallery.best), ("Worst", gallery.worst)):
        if cases:
            content += [
                element("h3", f"{title} by average precision"),
                element("ul", [_case(case) for case in cases], class_="cases"),
            ]
    if content:
        note = "Green: the true outline. The patient's right (R) is on the image's left."
        if any(label == BOXES_LABEL for case in (*gallery.best, *gallery.worst) for label, _ in case.pictures):
            note += " Orange: the model's boxes."
        content.insert(0, element("p", note, class_="small"))
    return content or None


def _case(case: Case) -> Markup:
    row = case.row
    pictures = [
        element(
            "figure",
            element("img", src=uri, alt=f"{label}: {row['phrase']}", loading="lazy", width=240, height=240),
            element("figcaption", label),
        )
        for label, uri in case.pictures
    ]
    scores = (
        f"average precision {number(row['average_precision'])} (prior {number(row['prior_average_precision'])}), "
        f"AUROC {number(row['auroc'])}, pointing {number(row['pointing'])}"
    )
    return element(
        "li",
        element("blockquote", row["phrase"]),
        element("div", pictures, class_="pictures"),
        element("p", scores, class_="small"),
        element("p", "; ".join(case.remarks) + "." if case.remarks else None, class_="small"),
        element("p", f"study {row['study']}, {row['query']}", class_="small"),
    )


def _protocol(result: Mapping[str, Any]) -> list[Markup]:
    pairs = []
    for name, value in result["protocol"].items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        pairs.append(joined(element("dt", name.replace("_", " ")), element("dd", text or "–")))
    introduction = "Scores with different hashes must not be compared. The model is not part of the protocol."
    return [element("p", introduction), element("dl", pairs)]


def _problems(result: Mapping[str, Any]) -> list[Markup] | None:
    listed = [*result["problems"], *result["notes"]]
    if not listed:
        return None
    more = [element("li", f"… and {len(listed) - 50} more, in audit.json")] if len(listed) > 50 else []
    return [element("ul", [element("li", text) for text in listed[:50]], more)]


def _next(steps: Sequence[str]) -> Markup | None:
    return element("pre", element("code", "\n".join(steps))) if steps else None
