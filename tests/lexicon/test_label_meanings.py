"""The finding that each data-set label means, pinned: a change in ``label_sets.toml`` must be made here as well.

A golden table: it shows that a meaning has changed, not that either is right.
"""

import pytest

from rightlung.lexicon import LABEL_SETS, label_set

MEANINGS = {
    "chexpert-14": {
        "No Finding": "no finding",
        "Enlarged Cardiomediastinum": "enlarged cardiomediastinum",
        "Cardiomegaly": "cardiomegaly",
        "Lung Opacity": "lung opacity",
        "Lung Lesion": "lung lesion",
        "Edema": "edema",
        "Consolidation": "consolidation",
        "Pneumonia": "pneumonia",
        "Atelectasis": "atelectasis",
        "Pneumothorax": "pneumothorax",
        "Pleural Effusion": "pleural effusion",
        "Pleural Other": "other pleural abnormality",
        "Fracture": "fracture",
        "Support Devices": "support devices",
    },
    "ms-cxr-8": {
        "Atelectasis": "atelectasis",
        "Cardiomegaly": "cardiomegaly",
        "Consolidation": "consolidation",
        "Edema": "edema",
        "Lung Opacity": "lung opacity",
        "Pleural Effusion": "pleural effusion",
        "Pneumonia": "pneumonia",
        "Pneumothorax": "pneumothorax",
    },
    "nih-14": {
        "Atelectasis": "atelectasis",
        "Cardiomegaly": "cardiomegaly",
        "Effusion": "pleural effusion",
        "Infiltration": "infiltration",
        "Mass": "mass",
        "Nodule": "nodule",
        "Pneumonia": "pneumonia",
        "Pneumothorax": "pneumothorax",
        "Consolidation": "consolidation",
        "Edema": "edema",
        "Emphysema": "emphysema",
        "Fibrosis": "fibrosis",
        "Pleural_Thickening": "pleural thickening",
        "Hernia": "hernia",
    },
    "nih-8-boxed": {
        "Atelectasis": "atelectasis",
        "Cardiomegaly": "cardiomegaly",
        "Effusion": "pleural effusion",
        "Infiltrate": "infiltration",
        "Mass": "mass",
        "Nodule": "nodule",
        "Pneumonia": "pneumonia",
        "Pneumothorax": "pneumothorax",
    },
    "vindr-22": {
        "Aortic enlargement": "aortic enlargement",
        "Atelectasis": "atelectasis",
        "Calcification": "calcification",
        "Cardiomegaly": "cardiomegaly",
        "Clavicle fracture": "clavicle fracture",
        "Consolidation": "consolidation",
        "Edema": "edema",
        "Emphysema": "emphysema",
        "Enlarged PA": "enlarged pulmonary artery",
        "ILD": "interstitial lung disease",
        "Infiltration": "infiltration",
        "Lung Opacity": "lung opacity",
        "Lung cavity": "lung cavity",
        "Lung cyst": "lung cyst",
        "Mediastinal shift": "mediastinal shift",
        "Nodule/Mass": "nodule or mass",
        "Pleural effusion": "pleural effusion",
        "Pleural thickening": "pleural thickening",
        "Pneumothorax": "pneumothorax",
        "Pulmonary fibrosis": "fibrosis",
        "Rib fracture": "rib fracture",
        "Other lesion": "other lesion",
    },
    "vindr-6": {
        "COPD": "copd",
        "Lung tumor": "lung tumor",
        "Pneumonia": "pneumonia",
        "Tuberculosis": "tuberculosis",
        "Other diseases": "other disease",
        "No finding": "no finding",
    },
    "imagenome-43": {
        "atelectasis": "atelectasis",
        "vascular calcification": "vascular calcification",
        "vascular congestion": "vascular congestion",
        "lung opacity": "lung opacity",
        "mediastinal displacement": "mediastinal shift",
        "pleural effusion": "pleural effusion",
        "enlarged cardiac silhouette": "cardiomegaly",
        "rib fracture": "rib fracture",
        "hernia": "hernia",
        "airspace opacity": "airspace opacity",
        "pleural/parenchymal scarring": "pleural or parenchymal scarring",
        "enlarged hilum": "enlarged hilum",
        "subcutaneous air": "subcutaneous emphysema",
        "hyperaeration": "hyperinflation",
        "pulmonary edema/hazy opacity": "edema",
        "lung lesion": "lung lesion",
        "mass/nodule (not otherwise specified)": "nodule or mass",
        "tortuous aorta": "tortuous aorta",
        "linear/patchy atelectasis": "linear atelectasis",
        "consolidation": "consolidation",
        "spinal degenerative changes": "spinal degenerative changes",
        "pneumothorax": "pneumothorax",
        "calcified nodule": "calcified nodule",
        "scoliosis": "scoliosis",
        "superior mediastinal mass/enlargement": "superior mediastinal mass",
        "elevated hemidiaphragm": "elevated hemidiaphragm",
        "multiple masses/nodules": "multiple nodules",
        "infiltration": "infiltration",
        "mediastinal widening": "mediastinal widening",
        "shoulder osteoarthritis": "shoulder osteoarthritis",
        "vascular redistribution": "vascular redistribution",
        "costophrenic angle blunting": "costophrenic angle blunting",
        "lobar/segmental collapse": "lobar collapse",
        "hydropneumothorax": "hydropneumothorax",
        "spinal fracture": "spinal fracture",
        "bone lesion": "bone lesion",
        "increased reticular markings/ild pattern": "reticular pattern",
        "pneumomediastinum": "pneumomediastinum",
        "diaphragmatic eventration (benign)": "diaphragmatic eventration",
        "sub-diaphragmatic air": "pneumoperitoneum",
        "cyst/bullae": "cyst or bulla",
        "bronchiectasis": "bronchiectasis",
        "clavicle fracture": "clavicle fracture",
    },
    "imagenome-10": {
        "pneumonia": "pneumonia",
        "pericardial effusion": "pericardial effusion",
        "copd/emphysema": "copd or emphysema",
        "fluid overload/heart failure": "heart failure",
        "granulomatous disease": "granulomatous disease",
        "goiter": "goiter",
        "aspiration": "aspiration",
        "lung cancer": "lung cancer",
        "alveolar hemorrhage": "alveolar hemorrhage",
        "interstitial lung disease": "interstitial lung disease",
    },
    "rsna": {
        "Lung Opacity": "pneumonia-like opacity",
        "No Lung Opacity / Not Normal": "other abnormality",
        "Normal": "no finding",
    },
    "siim": {
        "Pneumothorax": "pneumothorax",
    },
}


@pytest.mark.parametrize("name", [*MEANINGS])
def test_every_label_means_the_finding_it_was_reviewed_for(name: str) -> None:
    assert dict(label_set(name).findings) == MEANINGS[name]


def test_every_label_set_is_pinned_by_itself_or_by_its_parts() -> None:
    assert set(LABEL_SETS) - set(MEANINGS) == {"imagenome-53", "findings"}
    assert dict(label_set("imagenome-53").findings) == MEANINGS["imagenome-43"] | MEANINGS["imagenome-10"]
    assert all(label == meaning for label, meaning in label_set("findings").findings.items())


def test_labels_that_only_come_close_to_their_finding_are_known() -> None:
    close = {(name, label) for name in MEANINGS for label in label_set(name).notes}
    assert close == {
        ("chexpert-14", "No Finding"),
        ("vindr-6", "No finding"),
        ("rsna", "Normal"),
        ("imagenome-43", "enlarged cardiac silhouette"),
        ("imagenome-43", "pulmonary edema/hazy opacity"),
        ("imagenome-43", "linear/patchy atelectasis"),
        ("imagenome-10", "fluid overload/heart failure"),
    }
