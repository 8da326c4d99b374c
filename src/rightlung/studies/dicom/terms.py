"""Terms in headers for views, body parts and modalities (PS3.16: annex L, CID 4009, CID 4010; PS3.3 C.7.3.1.1.1).

Messages repeat only words and codes listed here: a header's free text may contain a name.
"""

from __future__ import annotations

import re
from typing import Literal

View = Literal["PA", "AP", "frontal", "lateral", "oblique", "decubitus", "axial"]

MODALITIES = {
    "CT": "a CT slice", "MR": "an MR slice", "US": "an ultrasound image", "NM": "a nuclear medicine image",
    "PT": "a PET slice", "XA": "an angiogram", "RF": "a fluoroscopic image", "MG": "a mammogram",
    "PX": "a panoramic X-ray of the teeth", "IO": "an intra-oral X-ray", "BMD": "a bone density scan",
    "ES": "an endoscopic image", "OP": "an image of the eye", "OPT": "an image of the eye", "SM": "a microscope slide",
    "GM": "a microscope image", "XC": "a photograph", "ECG": "an electrocardiogram", "SEG": "a segmentation",
    "SR": "a structured report", "DOC": "a document", "KO": "a list of key objects", "PR": "a presentation state",
    "RTIMAGE": "a radiotherapy image", "RTDOSE": "a radiotherapy dose", "RTSTRUCT": "radiotherapy structures",
    "RTPLAN": "a radiotherapy plan", "OT": "an image of kind OT (other), such as a screen capture",
    "SC": "a secondary capture",
}  # fmt: skip

RADIOGRAPHS = {"CR", "DX", "RG"}
"""Modalities that are read: computed and digital radiography, and scanned film."""

_STORAGE = "1.2.840.10008.5.1.4.1.1."
STORAGE_CLASSES = {
    "2": "CT", "2.1": "CT", "2.2": "CT", "4": "MR", "4.1": "MR", "6.1": "US", "3.1": "US", "20": "NM", "128": "PT",
    "130": "PT", "12.1": "XA", "12.1.1": "XA", "12.2": "RF", "12.2.1": "RF", "1.2": "MG", "1.2.1": "MG", "1.3": "IO",
    "1.3.1": "IO", "13.1.3": "MG", "66.4": "SEG", "88.11": "SR", "88.22": "SR", "88.33": "SR", "104.1": "DOC",
    "481.1": "RTIMAGE", "481.2": "RTDOSE", "481.3": "RTSTRUCT", "481.5": "RTPLAN", "11.1": "PR", "88.59": "KO",
}  # fmt: skip
"""Ends of SOP class UIDs, for files without a modality."""

# SNOMED CT, and the SNOMED RT codes of older files.
_CODES: dict[View, str] = {
    "PA": "272479007 R-40888 R-10214",
    "AP": "399348003 R-10206",
    "frontal": "399033003 R-10202",
    "lateral": "399067008 R-102CD 399198007 R-10232 399173006 R-10236 399352003 R-10228 399260004 R-10224 30730003 "
    "G-A145",
    "oblique": "399182000 R-102C1 399236003 R-10234 399184004 R-10238 399135007 R-10220 399356000 R-40985 399006002 "
    "R-10212 399038007 R-10210 399059000 R-10216 399312000 R-10208 399160007 R-10204 260427002 R-40783 260426006 "
    "R-40782",
    "axial": "399061009 R-10241",
}
VIEW_CODES = {code: view for view, codes in _CODES.items() for code in codes.split()}

_WORDS: dict[View, str] = {
    "PA": "PA POSTEROANTERIOR",
    "AP": "AP ANTEROPOSTERIOR",
    "frontal": "FRONTAL",
    "lateral": "LL RL LAT LATERAL LLAT RLAT LATERO SAGITTAL ML LM",
    "decubitus": "RLD LLD DECUBITUS DECUB",
    "oblique": "RLO LLO LAO RAO LPO RPO OBLIQUE OBL",
    "axial": "AXIAL AX",
}
_VIEW_WORDS = {word: view for view, words in _WORDS.items() for word in words.split()}
# If there are several words ("AP LLD", "LATERAL DECUBITUS"), the most specific one counts.
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
    """Return the view that a header's words mean, None if they are unknown.

    >>> view_of("AP"), view_of("AP LLD"), view_of("POSTERO_ANTERIOR"), view_of("SWIMMERS")
    ('AP', 'decubitus', 'PA', None)
    """
    words = re.findall("[A-Z]+", text.upper())
    found = {_VIEW_WORDS[word] for word in [*words, "".join(words)] if word in _VIEW_WORDS}
    return next((view for view in _STRONGEST if view in found), None)


def is_chest(text: str) -> bool:
    """Whether a header's body part is, or includes, the chest.

    >>> is_chest("CHEST"), is_chest("Thorax a.p."), is_chest("TSPINE")
    (True, True, False)
    """
    return any(word in _letters(text) for word in _CHEST_WORDS)


def says_nothing(text: str) -> bool:
    """Whether a header does not specify its body part."""
    return _letters(text) in _UNSAID


def _letters(text: str) -> str:
    return "".join(re.findall("[A-Z]+", text.upper()))


def repeatable_part(text: str) -> str | None:
    """Return a body part that may be shown: one of the terms above, or None, because other words may be a name.

    >>> repeatable_part("t-spine"), repeatable_part("DOE JANE")
    ('TSPINE', None)
    """
    letters = _letters(text)
    if letters in _OTHER_PARTS or letters in set(CHEST_CODES.values()):
        return letters
    if is_chest(text):
        return next(("CHEST" if word != "LUNG" else word) for word in _CHEST_WORDS if word in letters)
    known = [word for word in re.findall("[A-Z]+", text.upper()) if word in _OTHER_PARTS]
    return known[0] if known else None


def modality_of_storage_class(uid: str) -> str | None:
    """Return the modality of a SOP class that is not a radiograph."""
    return STORAGE_CLASSES.get(uid.removeprefix(_STORAGE)) if uid.startswith(_STORAGE) else None
