"""What headers call views, body parts and kinds of images (PS3.16: annex L, CID 4009, CID 4010; PS3.3 C.7.3.1.1.1).

Only words and codes that stand here are ever repeated to the user: a header's free words may be anybody's name.
"""

from __future__ import annotations

import re
from typing import Literal

View = Literal["PA", "AP", "frontal", "lateral", "oblique", "decubitus", "axial"]

MODALITIES = {
    "CT": "a CT slice",
    "MR": "an MR slice",
    "US": "an ultrasound image",
    "NM": "a nuclear medicine image",
    "PT": "a PET slice",
    "XA": "an angiogram",
    "RF": "a fluoroscopic image",
    "MG": "a mammogram",
    "PX": "a panoramic X-ray of the teeth",
    "IO": "an intra-oral X-ray",
    "BMD": "a bone density scan",
    "ES": "an endoscopic image",
    "OP": "an image of the eye",
    "OPT": "an image of the eye",
    "SM": "a microscope slide",
    "GM": "a microscope image",
    "XC": "a photograph",
    "ECG": "an electrocardiogram",
    "SEG": "a segmentation",
    "SR": "a structured report",
    "DOC": "a document",
    "KO": "a list of key objects",
    "PR": "a presentation state",
    "RTIMAGE": "a radiotherapy image",
    "RTDOSE": "a radiotherapy dose",
    "RTSTRUCT": "radiotherapy structures",
    "RTPLAN": "a radiotherapy plan",
    "OT": "an image of kind OT (other), such as a screen capture",
    "SC": "a secondary capture",
}
"""Modalities that are refused, as they are called for people."""

RADIOGRAPHS = {"CR", "DX", "RG"}
"""Modalities that are read: computed and digital radiography, and what film scanners write."""

_STORAGE = "1.2.840.10008.5.1.4.1.1."
STORAGE_CLASSES = {
    "2": "CT", "2.1": "CT", "2.2": "CT", "4": "MR", "4.1": "MR", "6.1": "US", "3.1": "US", "20": "NM", "128": "PT",
    "130": "PT", "12.1": "XA", "12.1.1": "XA", "12.2": "RF", "12.2.1": "RF", "1.2": "MG", "1.2.1": "MG", "1.3": "IO",
    "1.3.1": "IO", "13.1.3": "MG", "66.4": "SEG", "88.11": "SR", "88.22": "SR", "88.33": "SR", "104.1": "DOC",
    "481.1": "RTIMAGE", "481.2": "RTDOSE", "481.3": "RTSTRUCT", "481.5": "RTPLAN", "11.1": "PR", "88.59": "KO",
}  # fmt: skip
"""Ends of SOP class UIDs, for files that do not say their modality."""

# SNOMED CT, and before it the codes of SNOMED RT that older files have.
VIEW_CODES: dict[str, View] = {
    "272479007": "PA", "R-40888": "PA", "R-10214": "PA",
    "399348003": "AP", "R-10206": "AP",
    "399033003": "frontal", "R-10202": "frontal",
    "399067008": "lateral", "R-102CD": "lateral",
    "399198007": "lateral", "R-10232": "lateral",
    "399173006": "lateral", "R-10236": "lateral",
    "399352003": "lateral", "R-10228": "lateral",
    "399260004": "lateral", "R-10224": "lateral",
    "30730003": "lateral", "G-A145": "lateral",
    "399182000": "oblique", "R-102C1": "oblique",
    "399236003": "oblique", "R-10234": "oblique",
    "399184004": "oblique", "R-10238": "oblique",
    "399135007": "oblique", "R-10220": "oblique",
    "399356000": "oblique", "R-40985": "oblique",
    "399006002": "oblique", "R-10212": "oblique",
    "399038007": "oblique", "R-10210": "oblique",
    "399059000": "oblique", "R-10216": "oblique",
    "399312000": "oblique", "R-10208": "oblique",
    "399160007": "oblique", "R-10204": "oblique",
    "260427002": "oblique", "R-40783": "oblique",
    "260426006": "oblique", "R-40782": "oblique",
    "399061009": "axial", "R-10241": "axial",
}  # fmt: skip

_VIEW_WORDS: dict[str, View] = {
    "PA": "PA", "POSTEROANTERIOR": "PA",
    "AP": "AP", "ANTEROPOSTERIOR": "AP",
    "FRONTAL": "frontal",
    "LL": "lateral", "RL": "lateral", "LAT": "lateral", "LATERAL": "lateral", "LLAT": "lateral", "RLAT": "lateral",
    "LATERO": "lateral", "SAGITTAL": "lateral", "ML": "lateral", "LM": "lateral",
    "RLD": "decubitus", "LLD": "decubitus", "DECUBITUS": "decubitus", "DECUB": "decubitus",
    "RLO": "oblique", "LLO": "oblique", "LAO": "oblique", "RAO": "oblique", "LPO": "oblique", "RPO": "oblique",
    "OBLIQUE": "oblique", "OBL": "oblique",
    "AXIAL": "axial", "AX": "axial",
}  # fmt: skip
# Where several words are there ("AP LLD", "LATERAL DECUBITUS"), the one that says most about the picture counts.
_STRONGEST: tuple[View, ...] = ("decubitus", "oblique", "lateral", "axial", "PA", "AP", "frontal")
FRONTAL: tuple[View, ...] = ("PA", "AP", "frontal")

CHEST_CODES = {
    "51185008": "CHEST", "43799004": "CHEST", "816094009": "CHEST", "T-D3000": "CHEST", "T-D3200": "CHEST",
    "39607008": "LUNG", "T-28000": "LUNG", "86598002": "LUNG", "T-280A0": "LUNG",
    "417437006": "NECKCHEST", "R-FAB52": "NECKCHEST", "416550000": "CHESTABDOMEN", "R-FAB55": "CHESTABDOMEN",
    "416775004": "CHESTABDPELVIS", "R-FAB56": "CHESTABDPELVIS",
    "416152001": "NECKCHESTABDOMEN", "R-FAB53": "NECKCHESTABDOMEN",
    "416319003": "NECKCHESTABDPELV", "R-FAB54": "NECKCHESTABDPELV",
}  # fmt: skip
_CHEST_WORDS = ("CHEST", "THORAX", "TORAX", "TORACE", "LUNG", "PULMO", "POUMON", "PECHO", "CXR")
_UNSAID = {"", "UNKNOWN", "UNDEFINED", "UNSPECIFIED", "OTHER", "NONE", "NA", "DEFAULT", "SPECIAL", "ANY", "BODY"}
_OTHER_PARTS = """
    ABDOMEN ABDOMENPELVIS ACJOINT ADRENAL ANKLE ANUS AORTA AORTICARCH APPENDIX ARM AXILLA BACK BILEDUCT BLADDER BRAIN
    BREAST BRONCHUS BUTTOCK CALCANEUS CALF CAROTID CEREBELLUM CERVIX CHEEK CHOROIDPLEXUS CLAVICLE COCCYX COLON CORNEA
    CSPINE CERVICALSPINE CSPINETSPINE CTSPINE CTLSPINE DUODENUM EAR ELBOW ESOPHAGUS EXTREMITY EYE EYELID FACE
    FACIALBONES FEMUR FIBULA FINGER FOOT FOREARM GALLBLADDER GLUTEAL GROIN HAND HEAD HEADNECK HEART HINDFOOT HIP
    HUMERUS ILEUM ILIUM IAC JAW JAWREGION JEJUNUM KIDNEY KNEE LARYNX LEG LIVER LOWERLEG LOWERLIMB LSPINE LSSPINE
    LUMBARSPINE MANDIBLE MASTOID MAXILLA MEDIASTINUM MOUTH NECK NOSE NASALBONE OPTICCANAL ORBIT OVARY PANCREAS
    PARASTERNAL PAROTID PATELLA PELVIS PELVISLOWEXTREMT PENIS PHARYNX PROSTATE RECTUM RIB RIBS SIJOINT SACRUM SCALP
    SCAPULA SCLERA SCROTUM SELLA SHOULDER SINUS SKULL SPINE SPLEEN SSPINE STERNUM SCJOINT STOMACH SUBMANDIBULAR TSPINE
    THORACICSPINE
    TLSPINE TESTIS THIGH THUMB THYMUS THYROID TIBIA TMJOINT TOE TONGUE TOOTH TEETH TRACHEA UPPERARM UPPERLIMB URETER
    URETHRA UTERUS VAGINA VULVA WHOLEBODY WHOLESPINE WRIST ZYGOMA PHANTOM
    """.split()  # noqa: SIM905  (one name a line would fill three pages)


def view_of(text: str) -> View | None:
    """Return the view that a header's words mean, if they are known.

    >>> view_of("AP"), view_of("AP LLD"), view_of("POSTERO_ANTERIOR"), view_of("SWIMMERS")
    ('AP', 'decubitus', 'PA', None)
    """
    words = re.findall("[A-Z]+", text.upper())
    found = {_VIEW_WORDS[word] for word in [*words, "".join(words)] if word in _VIEW_WORDS}
    return next((view for view in _STRONGEST if view in found), None)


def is_chest(text: str) -> bool:
    """Tell whether a header's body part is the chest, or holds it.

    >>> is_chest("CHEST"), is_chest("Thorax a.p."), is_chest("TSPINE")
    (True, True, False)
    """
    letters = "".join(re.findall("[A-Z]+", text.upper()))
    return any(word in letters for word in _CHEST_WORDS)


def says_nothing(text: str) -> bool:
    """Tell whether a header leaves its body part open."""
    return "".join(re.findall("[A-Z]+", text.upper())) in _UNSAID


def repeatable_part(text: str) -> str | None:
    """Return a body part as it may be shown: one of the terms above, or None, since other words may be a name.

    >>> repeatable_part("t-spine"), repeatable_part("DOE JANE")
    ('TSPINE', None)
    """
    letters = "".join(re.findall("[A-Z]+", text.upper()))
    if letters in _OTHER_PARTS or letters in set(CHEST_CODES.values()):
        return letters
    if is_chest(text):
        return next(("CHEST" if word != "LUNG" else word) for word in _CHEST_WORDS if word in letters)
    known = [word for word in re.findall("[A-Z]+", text.upper()) if word in _OTHER_PARTS]
    return known[0] if known else None


def modality_of_storage_class(uid: str) -> str | None:
    """Return the modality that a SOP class stands for, of those that are not radiographs."""
    return STORAGE_CLASSES.get(uid.removeprefix(_STORAGE)) if uid.startswith(_STORAGE) else None
