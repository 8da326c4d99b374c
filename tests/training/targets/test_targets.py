"""Each target by hand: what is built, where augmentation moves it, what the mirror does to it, what is refused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rightlung.core import Box, Extent, Heatmap, InputError, Mask, Phrase, Polarity, Report, Study
from rightlung.lexicon import IMAGENOME_REGIONS
from rightlung.phantom.config import default_config
from rightlung.phantom.loader import PhantomLoader
from rightlung.phantom.report import write_report
from rightlung.phantom.study import _without_specks, make_studies, study_scene
from rightlung.phantom.write import PhantomJob, write_phantom
from rightlung.studies.sources import Source, open_source
from rightlung.training import setup
from rightlung.training.annotations import StudyAnnotations, annotate_scene, annotate_study
from rightlung.training.augmentation import Augmentation, AugmentationParams, make_params, move_boxes, move_masks
from rightlung.training.batches import Batches
from rightlung.training.datasets import LoadOptions, SourceDataset
from rightlung.training.recipe import Data, DataEntry
from rightlung.training.setup import check_available, open_datasets
from rightlung.training.targets import TARGETS, TargetBuilder, target_builders
from rightlung.training.targets.base import BatchPart, RaggedTensor, StudyFrame
from rightlung.training.targets.phrases import PhraseTargets, enclosing_boxes, side_swapped_sentences, union_masks
from tests.training.recipes import quiet, small
from tests.training.test_batches import DATA, opened

CPU = torch.device("cpu")
STILL = Augmentation().times(0)
P, N, U = Polarity.POSITIVE, Polarity.NEGATIVE, Polarity.UNCERTAIN
GAZE = np.zeros((4, 4), dtype=np.float32)
GAZE[0, 3] = 2.0
EFFUSION = Box(0.75, 0.5, 1.0, 1.0)
STUDY = Study(
    id="made",
    load=lambda: np.full((16, 16), 0.5, dtype=np.float32),
    report=Report("Small left effusion. No edema."),
    regions={"left lung": Box(0.5, 0.0, 1.0, 1.0), "right lung": Box(0.0, 0.0, 0.5, 1.0)},
    region_findings={"left lung": {"pleural effusion": P, "edema": N}, "right lung": {"pleural effusion": U}},
    findings={"pleural effusion": P, "edema": N, "pneumonia": U},
    gaze=Heatmap(GAZE),
    phrases=(
        Phrase("Small left effusion.", (EFFUSION,), regions=("left lung",), findings={"pleural effusion": P}),
        Phrase("The effusion may be a mass.", (EFFUSION,), regions=("left lung",), findings={"mass": U}),
        Phrase("No edema.", findings={"edema": N}),
    ),
)
BARE = Study(id="bare", load=lambda: np.full((16, 16), 0.5, dtype=np.float32), phrases=(Phrase("Something."),))
OPTIONS = {
    "labels": {"findings": ["Effusion", "edema", "pneumonia", "cardiomegaly", "no finding"]},
    "regions": {"findings": ["pleural effusion", "edema"]},
    "phrases": {"boxes": True},
}
ALL = ("boxes", "regions", "gaze", "labels", "report")


class Made(Source):
    """A source of studies made by hand."""

    def __init__(self, *studies: Study) -> None:
        super().__init__("made-by-hand")
        self.studies = studies

    @property
    def ids(self) -> list[str]:
        return [study.id for study in self.studies]

    def _build(self, position: int) -> Study:
        return self.studies[position]

    def _position(self, study_id: str) -> int | None:
        return self.ids.index(study_id) if study_id in self.ids else None


def batch_of(
    *studies: Study, augmentation: Augmentation | None = None, targets: Sequence[str] = ALL, **more: Any
) -> dict[str, Any]:
    """The targets of one batch with each study once, in their order."""
    entry = DataEntry(source="made-by-hand", **more)
    options = {name: OPTIONS[name] for name in targets if name in OPTIONS}
    data = Data(train=(entry,), targets=tuple(targets), target_options=options, image_size=16, mask_grid=4)
    dataset = SourceDataset(Made(*dict.fromkeys(studies)), LoadOptions(entry, 16, 4, target_builders(data), CPU, 0))
    batch = Batches([(entry, dataset)], len(studies), 1, CPU, augmentation, data=data).batch_at(0)
    assert sorted(batch.ids) == sorted(study.id for study in studies)
    return {"ids": list(batch.ids), **batch.targets}


def known(values: torch.Tensor) -> list[Any]:
    return [None if math.isnan(value) else value for value in values.flatten().tolist()]


def test_every_file_of_the_package_registers_its_target() -> None:
    folder = Path(setup.__file__).parent / "targets"
    assert set(TARGETS) == {path.stem for path in folder.glob("*.py")} - {"__init__", "base"}


def test_labels_are_present_absent_or_unknown() -> None:
    assert known(batch_of(STUDY)["labels"]["values"]) == [1.0, 0.0, None, None, 0.0]
    alone = batch_of(STUDY, missing_labels="negative")["labels"]["values"]
    assert known(alone) == [1.0, 0.0, None, None, 0.0]  # the source does not label cardiomegaly at all
    labelled = replace(BARE, findings={"cardiomegaly": P})
    found = batch_of(STUDY, labelled, missing_labels="negative")
    closed = found["labels"]["values"][found["ids"].index("made")]
    assert known(closed) == [1.0, 0.0, None, 0.0, 0.0]  # what is uncertain stays so


def test_boxes_have_the_findings_of_all_phrases_about_them() -> None:
    found = batch_of(BARE, STUDY)
    boxes, image = found["boxes"], found["ids"].index("made")
    assert boxes["boxes"].tolist() == [list(EFFUSION.as_tuple())]
    assert boxes["labels"] == [["lung lesion", "lung opacity", "mass", "nodule or mass", "pleural effusion"]]
    assert boxes["image_indices"] == [image]
    assert boxes["has_boxes"].all()
    hidden = batch_of(STUDY, phrase_masks="none")["boxes"]
    assert hidden["boxes"].shape == (0, 4)
    assert not hidden["has_boxes"].any()


def test_a_mask_without_boxes_has_a_box_around_it() -> None:
    pixels = np.zeros((16, 16), dtype=np.bool_)
    pixels[4:8, 0:8] = True
    masked = replace(STUDY, phrases=(Phrase("Effusion.", mask=Mask(pixels), findings={"pleural effusion": P}),))
    assert batch_of(masked)["boxes"]["boxes"].tolist() == [[0.0, 0.25, 0.5, 0.5]]


def test_the_box_of_a_phrase_is_around_all_its_boxes_and_is_mirrored_with_its_words() -> None:
    effusion = Phrase("Left and right effusion, more on the left.", (EFFUSION, Box(0.0, 0.75, 0.125, 1.0)))
    study = replace(STUDY, phrases=(replace(effusion, findings={"pleural effusion": P}), Phrase("No edema.")))
    asked: dict[str, Any] = {"targets": ("phrases",), "phrases_per_image": 2, "positive_share": 1.0}
    found = batch_of(study, **asked)["phrases"]
    box = dict(zip(found["texts"], found["boxes"].tolist(), strict=True))
    assert box[effusion.text] == [0.0, 0.5, 1.0, 1.0]
    assert found["has_box"].tolist() == [text == effusion.text for text in found["texts"]]
    mirror = replace(STILL, mirror="words", mirror_probability=1.0)
    turned = batch_of(replace(study, phrases=STUDY.phrases[:1]), augmentation=mirror, **asked)["phrases"]
    assert turned["texts"] == ["Small right effusion."]
    torch.testing.assert_close(turned["boxes"], torch.tensor([[0.0, 0.5, 0.25, 1.0]]))
    hidden = batch_of(study, phrase_masks="none", **asked)["phrases"]
    assert not hidden["has_box"].any()
    gone = batch_of(*(replace(STUDY, id=f"{n}") for n in range(24)), augmentation=replace(STILL, shift=0.9), **asked)
    kept = gone["phrases"]["boxes"][gone["phrases"]["has_box"]]
    assert 0 < len(kept) < len(gone["phrases"]["boxes"])
    assert (kept[:, 2:] > kept[:, :2]).all()


def test_regions_have_findings_and_sentences() -> None:
    regions = batch_of(STUDY)["regions"]
    left, right = (IMAGENOME_REGIONS.index(f"{side} lung") for side in ("left", "right"))
    assert regions["findings"].shape == (1, len(IMAGENOME_REGIONS), 2)
    assert known(regions["findings"][0, left]) == [1.0, 0.0]
    assert known(regions["findings"][0, right]) == [None, None]
    assert regions["sentences"][0][left] == ["Small left effusion.", "The effusion may be a mass."]
    assert regions["sentences"][0][right] == []
    assert regions["present"][0].nonzero().flatten().tolist() == sorted([left, right])


def test_gaze_is_on_the_grid_and_unknown_where_none_was_recorded() -> None:
    found = batch_of(STUDY, BARE)
    gaze, image = found["gaze"], found["ids"].index("made")
    assert gaze["has_gaze"].tolist() == [name == "made" for name in found["ids"]]
    np.testing.assert_allclose(gaze["maps"][image, 0], [0.0, 0.0, 0.0, 1.0], atol=0.2)
    assert gaze["maps"][image].argmax() == 3
    assert not gaze["maps"][1 - image].any()


@pytest.mark.parametrize("augmentation", [STILL, None])
def test_a_mirrored_image_has_all_its_targets_mirrored(augmentation: Augmentation | None) -> None:
    plain = batch_of(STUDY, phrases_per_image=2, positive_share=1.0)
    found = batch_of(
        STUDY, STUDY, augmentation=augmentation, phrases_per_image=2, positive_share=1.0, mirror_pairs=True
    )
    last, right = -1, IMAGENOME_REGIONS.index("right lung")  # the mirror image of the first
    torch.testing.assert_close(found["boxes"]["boxes"][last], torch.tensor([0.0, 0.5, 0.25, 1.0]))
    assert known(found["regions"]["findings"][last, right]) == [1.0, 0.0]
    assert found["regions"]["sentences"][last][right] == ["Small right effusion.", "The effusion may be a mass."]
    torch.testing.assert_close(found["regions"]["boxes"][last, right], plain["regions"]["boxes"][0, right])
    torch.testing.assert_close(found["gaze"]["maps"][last], plain["gaze"]["maps"][0].flip(-1), atol=1e-5, rtol=0)
    assert found["report"]["texts"][last] == "Small right effusion. No edema."
    assert known(found["labels"]["values"][last]) == known(plain["labels"]["values"][0])
    assert "Small right effusion." in found["phrases"]["texts"]
    assert found["phrases"]["masks"][last, 2:, 0].min() > 0.9


def test_an_image_whose_report_has_no_mirror_image_stays() -> None:
    lingula = replace(STUDY, report=Report("Lingular opacity."))
    found = batch_of(lingula, augmentation=replace(STILL, mirror="words", mirror_probability=1.0))
    assert found["report"]["texts"] == ["Lingular opacity."]
    torch.testing.assert_close(found["boxes"]["boxes"], torch.tensor([EFFUSION.as_tuple()]))


def test_without_mirrored_words_only_the_pixels_and_boxes_are_mirrored() -> None:
    pixels = replace(STILL, mirror="pixels", mirror_probability=1.0)
    lingula = replace(STUDY, id="lingula", report=Report("Lingular opacity."))
    settings: dict[str, Any] = {"phrases_per_image": 2, "positive_share": 1.0}
    plain = batch_of(STUDY, lingula, augmentation=STILL, **settings)
    found = batch_of(STUDY, lingula, augmentation=pixels, **settings)
    mirrored_boxes = torch.tensor([[0.0, 0.5, 0.25, 1.0]] * 2)  # also where the report has no mirror image
    torch.testing.assert_close(found["boxes"]["boxes"], mirrored_boxes)
    left, right = (IMAGENOME_REGIONS.index(f"{side} lung") for side in ("left", "right"))
    torch.testing.assert_close(found["regions"]["boxes"][:, left], torch.tensor([[0.0, 0.0, 0.5, 1.0]] * 2))
    torch.testing.assert_close(found["regions"]["boxes"][:, right], torch.tensor([[0.5, 0.0, 1.0, 1.0]] * 2))
    assert known(found["regions"]["findings"]) == known(plain["regions"]["findings"])
    assert found["regions"]["sentences"] == plain["regions"]["sentences"]
    assert found["report"] == plain["report"]
    assert found["phrases"]["texts"] == plain["phrases"]["texts"]
    torch.testing.assert_close(found["phrases"]["masks"], plain["phrases"]["masks"].flip(-1), atol=1e-4, rtol=0)


def params_by(settings: Augmentation, count: int, seed: int = 0) -> AugmentationParams:
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float, *shape: int) -> torch.Tensor:
        return torch.rand(count, *shape, generator=generator) * (high - low) + low

    return make_params(settings, uniform, lambda: torch.zeros(count, 1, 1, 1))


def test_moved_boxes_are_upright_boxes_around_the_moved_masks() -> None:
    settings = replace(STILL, rotation=20, scale=0.2, shift=0.1, shear=0.1)
    params = params_by(settings, 32)
    mask = torch.zeros(32, 1, 256, 256)
    mask[:, :, 96:128, 64:160] = 1.0
    moved = move_boxes(torch.tensor([[0.25, 0.375, 0.625, 0.5]] * 32), params, torch.arange(32))
    for box, pixels in zip(moved, move_masks(mask, params)[:, 0] > 0.5, strict=True):
        rows, columns = pixels.any(1).nonzero(), pixels.any(0).nonzero()
        around = torch.stack([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]) / 256
        torch.testing.assert_close(box, around, atol=1.5 / 256, rtol=0)
    boxes = torch.rand(32, 4)
    assert move_boxes(boxes, params_by(STILL, 32), torch.arange(32)) is boxes


def test_boxes_and_regions_leave_the_image_with_what_they_surround() -> None:
    far = replace(STILL, shift=0.9)
    found = batch_of(*(replace(STUDY, id=f"{number}") for number in range(24)), augmentation=far)
    boxes, regions = found["boxes"], found["regions"]
    assert 0 < len(boxes["boxes"]) < 24
    assert len(boxes["labels"]) == len(boxes["image_indices"]) == len(boxes["boxes"])
    left = IMAGENOME_REGIONS.index("left lung")
    assert set(boxes["image_indices"]) <= set(regions["present"][:, left].nonzero().flatten().tolist())


@dataclass(frozen=True)
class Age(TargetBuilder):
    """The example of docs/training.md."""

    name = "age"

    def available_in(self, study: Study) -> bool:
        return study.age is not None

    def build(self, study: Study, annotations: StudyAnnotations, frame: StudyFrame) -> dict[str, Any]:
        return {"years": torch.tensor([math.nan if study.age is None else study.age])}

    def collate(self, part: BatchPart) -> dict[str, Any]:
        return {"years": part.columns["years"].concatenated()}  # type: ignore[union-attr]


def test_a_target_of_ones_own_is_one_class() -> None:
    address = f"{__name__}:Age"
    found = batch_of(replace(STUDY, age=60.0), BARE, targets=(address,))
    assert known(found["age"]["years"]) == [60.0 if name == "made" else None for name in found["ids"]]
    data = replace(DATA, targets=(address,))
    phantoms = Batches([opened(DataEntry(source="phantom?count=2&seed=11"), data)], 2, 1, CPU, data=data).batch_at(0)
    ages = {study.id: study.age for study in make_studies(default_config(), 11, range(2), 64)}
    assert phantoms.targets["age"]["years"].tolist() == [ages[name] for name in phantoms.ids]


def test_parts_of_a_batch_keep_their_own_images() -> None:
    entries = [DataEntry(source="phantom?count=4&seed=11", cached_studies=4, phrases_per_image=2) for _ in range(2)]
    data = replace(DATA, train=tuple(entries), targets=ALL, target_options=OPTIONS)
    pairs = [opened(entry, data) for entry in entries]
    batch = Batches(pairs, 8, 3, CPU, data=data).batch_at(0)
    studies = {study.id: study for study in make_studies(default_config(), 11, range(4), 64)}
    boxes = batch.targets["boxes"]
    assert set(boxes["image_indices"]) & set(range(4, 8))
    for image, box in zip(boxes["image_indices"], boxes["boxes"].tolist(), strict=True):
        own = [known.as_tuple() for phrase in studies[batch.ids[image]].located_findings for known in phrase.boxes]
        assert min(np.abs(np.array(own) - box).max(1)) < 1e-5
    assert batch.targets["report"]["texts"] == [studies[name].report.text for name in batch.ids]  # type: ignore[union-attr]
    assert batch.targets["gaze"]["has_gaze"].all()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("written")
    write_phantom(PhantomJob(folder, default_config(), PHANTOMS, 21, 64))
    return f"manifest:{folder}"


PHANTOMS = 40


@pytest.mark.parametrize("read", ["phantom", "manifest"])
def test_a_rendered_study_and_the_same_study_read_have_the_same_annotations_and_masks(read: str, written: str) -> None:
    config = default_config()
    rendered = next(PhantomLoader(config, 21, 64).batches([range(PHANTOMS)]))
    for masks in rendered.rendering.lesion_masks:  # a study's masks have no specks; nothing else may differ
        masks.copy_(torch.from_numpy(_without_specks(masks.numpy())))
    built = PhraseTargets(boxes=True).build_from_rendering(rendered, 16)
    column, boxes = built["masks"], built["boxes"]
    assert isinstance(column, RaggedTensor)
    assert isinstance(boxes, RaggedTensor)
    studies = open_source(f"phantom?count={PHANTOMS}&seed=21&size=64" if read == "phantom" else written)
    sided = located = 0
    for number, study in enumerate(studies):
        scene = study_scene(config, 21, number)
        one = annotate_scene(scene, write_report(scene, config, 21))
        other, locations = annotate_study(study)
        for name in ("id", "report", "present", "absent", "uncertain", "positive_findings"):
            assert getattr(one, name) == getattr(other, name), name
        frame = StudyFrame(64, 16, Extent(), locations)
        read_columns = PhraseTargets(boxes=True).build(study, other, frame)
        own, own_boxes = (RaggedTensor.of(read_columns[name], [len(locations)]) for name in ("masks", "boxes"))
        pairs = [
            (mine.locations, theirs.locations) for mine, theirs in zip(one.sentences, other.sentences, strict=True)
        ]
        for mine, theirs in zip(one.sentences, other.sentences, strict=True):
            for name in ("text", "positive", "side", "visible", "regions", "abnormal"):
                assert getattr(mine, name) == getattr(theirs, name), (name, mine, theirs)
            sided += theirs.side is not None
        assert one.finding_locations.keys() == other.finding_locations.keys()
        pairs += [(one.finding_locations[name], other.finding_locations[name]) for name in one.finding_locations]
        for lesions, phrases in pairs:
            parts = [union_masks(column.select([number]), [(0, (one,))], 16, CPU) for one in lesions]
            union = union_masks(column.select([number]), [(0, lesions)], 16, CPU)
            read_union = union_masks(own, [(0, phrases)], 16, CPU)
            around = enclosing_boxes(boxes.select([number]), [(0, lesions)], CPU)
            torch.testing.assert_close(around, enclosing_boxes(own_boxes, [(0, phrases)], CPU))
            if len(parts) < 2:
                assert torch.equal(union, read_union)
            else:  # lesions that share a cell may overlap there or not
                assert (union <= read_union).all()
                assert (read_union <= sum(parts) + 1e-6).all()
            located += bool(phrases)
    assert sided > 25
    assert located > 100


def sided(*phrases: Phrase, **more: Any) -> list[str | None]:
    study = Study(id="a", load=lambda: np.zeros((4, 4), dtype=np.float32), phrases=phrases, **more)
    return [one.side for one in annotate_study(study)[0].sentences]


def test_the_side_of_a_sentence_is_known_where_the_other_side_has_nothing_of_the_kind() -> None:
    effusion = {"pleural effusion": P}
    left, right = Phrase("Left effusion.", findings=effusion), Phrase("Right effusion.", findings=effusion)
    assert sided(left) == ["left"]
    assert sided(left, right) == [None, None]
    assert sided(left, Phrase("Right nodule.", findings={"nodule": P})) == ["left", "right"]
    assert sided(left, Phrase("No right effusion.", findings={"pleural effusion": N})) == ["left", None]
    assert sided(left, Phrase("Bibasal effusions.", findings=effusion)) == [None, None]
    assert sided(left, Phrase("Effusion.", findings=effusion)) == [None, None]  # it may be on the right
    special, general = ({name: P} for name in ("consolidation", "lung opacity"))  # the first implies the second
    assert sided(Phrase("Left.", findings=special), Phrase("Right.", findings=general)) == ["left", None]
    assert sided(Phrase("Effusion.", regions=("left lung",), findings=effusion)) == ["left"]
    assert sided(Phrase("Effusion.", (Box(0.1, 0.5, 0.3, 0.9),), findings=effusion)) == ["right"]
    assert sided(left, region_findings={"right lung": effusion}) == [None]
    assert sided(Phrase("Left effusion.")) == ["left"]  # by the rule labeller, as no finding is coded
    assert sided(Phrase("Left effusion."), Phrase("Trace fluid in the right pleural space.")) == [None, None]
    assert sided(Phrase("No left effusion."), Phrase("Unchanged from the left.")) == [None, None]
    assert sided(Phrase("Left effusion.", coded=True)) == [None]  # coded, and nothing was found to code
    assert sided(Phrase("Left port.", findings={"support devices": P})) == [None]


def test_sides_are_swapped_and_left_out_on_any_source() -> None:
    assert not side_swapped_sentences(annotate_study(STUDY)[0])  # there may be an effusion in the right lung
    one_sided = replace(STUDY, region_findings={})
    swapped = batch_of(one_sided, phrases_per_image=4, swapped_side_probability=1.0, targets=())["phrases"]
    assert set(swapped["texts"]) == {"Small right effusion."}
    assert not swapped["present"].any()
    stripped = batch_of(one_sided, phrases_per_image=2, positive_share=1.0, drop_side_probability=1.0, targets=())[
        "phrases"
    ]
    assert "Small effusion." in stripped["texts"]
    assert stripped["has_mask"].all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"phrases_per_image": 1},
            "phrases_per_image: no study of made-by-hand has a phrase whose findings are known, or a label",
        ),
        ({"words_from": "labels"}, "words_from: no study of made-by-hand has a label"),
        ({"paired_text": "report"}, "paired_text: no study of made-by-hand has a report"),
    ],
)
def test_what_a_bare_source_cannot_serve_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=rf"data\.train\[1\]\.{said}"):
        serve(settings, BARE)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, r"phrase_masks: no study of .* has a phrase with a mask or a box; set phrase_masks: none"),
        ({"phrase_masks": "regions"}, r"phrase_masks: no study of .* has a phrase with the box of a region"),
        ({"phrase_masks": "none", "other_study_probability": 0.1}, "other_study_probability: no study of"),
        (
            {"phrase_masks": "none", "swapped_side_probability": 0.1},
            r"swapped_side_probability: .* on one side only",
        ),
        (
            {"phrase_masks": "none", "drop_side_probability": 0.1},
            r"drop_side_probability: .* on one side only",
        ),
    ],
)
def test_what_sentences_without_sides_and_boxes_cannot_serve_is_refused(settings: dict[str, Any], said: str) -> None:
    plain = replace(STUDY, regions={}, phrases=(Phrase("Effusion.", findings={"pleural effusion": P}),))
    with pytest.raises(InputError, match=rf"data\.train\[1\]\.{said}"):
        serve({"phrases_per_image": 1, **settings}, plain)
    serve({"phrases_per_image": 1, "phrase_masks": "none"}, plain)


def serve(settings: dict[str, Any], study: Study) -> None:
    entry = DataEntry(source="made-by-hand", **settings)
    check_available(entry, SourceDataset(Made(study), LoadOptions(entry, 16, 4, [], CPU, 0)), "data.train[1]")


@pytest.mark.parametrize("target", ["gaze", "boxes", "regions"])
def test_a_target_that_no_source_has_is_refused(tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(setup, "open_source", lambda address: Made(BARE))
    recipe = small(tmp_path, "data.train=[{source: 'nih:x'}]", f"data.targets=[{target}]")
    with pytest.raises(InputError, match=rf"data\.targets: no study of nih:x has {target}"):
        open_datasets(recipe, CPU, quiet())
