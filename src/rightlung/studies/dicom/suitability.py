"""Whether a DICOM image is a frontal chest radiograph according to its header. Missing information passes."""

from __future__ import annotations

from typing import Any

from rightlung.studies.dicom import terms
from rightlung.studies.dicom.header import DicomHeader
from rightlung.studies.dicom.terms import View

_SCHEMES = {"SCT", "SRT", "SNM3", "99SDM"}


def describe(header: DicomHeader) -> tuple[dict[str, Any], list[str]]:
    """Return modality, view, side and body part, and the reasons against a frontal chest radiograph."""
    view, modality = _view(header), header.text("Modality")
    laterality = header.text("ImageLaterality") or header.text("Laterality")
    facts = {
        "modality": modality if modality in terms.RADIOGRAPHS or modality in terms.MODALITIES else None,
        "view": view,
        "laterality": laterality if laterality in ("L", "R", "B", "U") else None,
        "body_part": _body_part(header),
    }
    return facts, [*_wrong_kind(header), *_wrong_part(header), *_wrong_view(header, view)]


def orientation(header: DicomHeader) -> tuple[str, str] | None:
    """Return the directions of rows and columns, a letter each of L, R, H, F, A, P, if stated (PS3.3 C.7.6.1.1.1)."""
    texts = [text.upper() for text in header.texts("PatientOrientation")]
    if len(texts) != 2 or not all(text and text[0] in "LRHFAP" for text in texts):
        return None
    return texts[0][0], texts[1][0]


def _codes(header: DicomHeader, name: str) -> list[str]:
    return [
        item.text("CodeValue") for item in header.items.get(name, ()) if item.text("CodingSchemeDesignator") in _SCHEMES
    ]


def _view(header: DicomHeader) -> View | None:
    views = [terms.view_of(" ".join(header.texts("ViewPosition")))]
    views += [terms.VIEW_CODES.get(code) for code in _codes(header, "ViewCodeSequence")]
    said = [view for view in views if view is not None]
    # One of them may be the machine's default, which is usually a frontal view.
    return next((view for view in said if view not in terms.FRONTAL), None) or next(iter(said), None)


def _body_part(header: DicomHeader) -> str | None:
    part = terms.repeatable_part(header.text("BodyPartExamined"))
    if part is not None:
        return part
    return next(
        (terms.CHEST_CODES[code] for code in _codes(header, "AnatomicRegionSequence") if code in terms.CHEST_CODES),
        None,
    )


def _wrong_kind(header: DicomHeader) -> list[str]:
    modality = header.text("Modality")
    if not modality:
        modality = terms.modality_of_storage_class(header.text("SOPClassUID")) or ""
    if modality in terms.MODALITIES:
        return [f"it is {terms.MODALITIES[modality]}, not a radiograph (Modality {modality})"]
    if modality and modality not in terms.RADIOGRAPHS:
        return ["its Modality is not CR, DX or RG"]
    if header.text("PresentationIntentType") == "FOR PROCESSING":
        return ["it contains raw detector values (Presentation Intent Type FOR PROCESSING), not an image"]
    return []


def _wrong_part(header: DicomHeader) -> list[str]:
    text = header.text("BodyPartExamined")
    if terms.is_chest(text):
        return []
    if not terms.says_nothing(text):
        part = terms.repeatable_part(text)
        if part is not None:
            return [f"it does not show the chest (Body Part Examined {part})"]
        return ["its Body Part Examined is not the chest (not repeated here, because it is not one of DICOM's terms)"]
    codes = _codes(header, "AnatomicRegionSequence")
    if codes and not any(code in terms.CHEST_CODES for code in codes):
        return ["it does not show the chest (code in its Anatomic Region Sequence)"]
    return []


def _wrong_view(header: DicomHeader, view: View | None) -> list[str]:
    if view is not None and view not in terms.FRONTAL:
        article = "an" if view in ("oblique", "axial") else "a"
        by_position = terms.view_of(" ".join(header.texts("ViewPosition"))) == view
        said = "View Position" if by_position else "View Code Sequence"
        return [f"it is {article} {view} view, not a frontal one (according to its {said})"]
    directions = orientation(header)
    if view is None and directions is not None and set(directions) & {"A", "P"}:
        return ["it is a lateral view, not a frontal one (Patient Orientation " + "\\".join(directions) + ")"]
    return []
