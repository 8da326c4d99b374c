"""What FITA claims (papers' Table 1 and 2), and what we ask besides, each judged by a paired difference by seed."""

from __future__ import annotations

from rightlung.reproduce.fita.measuring import CLINICAL, MAPS, R2GEN, REPORT, TRUTH
from rightlung.reproduce.pair_claims import PairClaim, Place
from rightlung.scoring.text_retrieval import IMAGE_TO_TEXT

BLEU: Place = (REPORT, "bleu_4")
METEOR: Place = (REPORT, "meteor")
ROUGE: Place = (REPORT, "rouge_l")
CIDER: Place = (REPORT, "cider")
R2GEN_BLEU: Place = (R2GEN, "bleu_4")
CE: Place = (CLINICAL, "ce_r2gen_f1")
MICRO: Place = (CLINICAL, "micro_f1_13")
MCC: Place = (CLINICAL, "macro_mcc_13")
FREQUENT_MCC: Place = (CLINICAL, "macro_mcc_10_positives")
SIDED: Place = (CLINICAL, "sided_f1")
TRUE_F1: Place = (TRUTH, "macro_f1_13")
TRUE_MICRO: Place = (TRUTH, "micro_f1_13")
TRUE_MCC: Place = (TRUTH, "macro_mcc_13")
TRUE_SIDED: Place = (TRUTH, "sided_f1")
POINTING: Place = ("instances", "pointing")
RECALL: Place = (IMAGE_TO_TEXT, "recall@10")
SENTENCES: Place = (MAPS, "pointing")
TITLES = {
    BLEU: "BLEU-4", METEOR: "METEOR", ROUGE: "ROUGE-L", CIDER: "CIDEr", R2GEN_BLEU: "BLEU-4, R2Gen's words",
    CE: "CE F1 as R2Gen, against the report", MICRO: "micro F1, 13",
    MCC: "macro MCC, 13", FREQUENT_MCC: "macro MCC, ≥ 10 positives", SIDED: "F1 of finding and side",
    TRUE_F1: "macro F1 against the scene", TRUE_MICRO: "micro F1 against the scene",
    TRUE_MCC: "macro MCC against the scene", TRUE_SIDED: "F1 of finding and side against the scene",
    POINTING: "pointing of phrases", RECALL: "R@10, reports by images", SENTENCES: "pointing of written sentences",
}  # fmt: skip
"""Every place of a claim or a table, with its heading."""

_CLINICAL = (CE, TRUE_F1)
CLAIMS: tuple[PairClaim, ...] = (
    *(PairClaim("claim 1, Table 1", "FITA writes the best reports in words: better than KiUT.", "fita", "kiut", place)
      for place in (BLEU, METEOR, ROUGE)),
    *(PairClaim("claim 2, Table 2", f"{part} helps, in words and in findings.", slug, "kiut", place)
      for part, slug in (("IFR", "ifr"), ("TFR", "tfr")) for place in (BLEU, *_CLINICAL)),
    *(PairClaim("claim 3, Table 2", f"IFR and TFR together without CA find less than {part} alone.", "ifr-tfr", slug,
                place, better="lower")
      for part, slug in (("IFR", "ifr"), ("TFR", "tfr")) for place in _CLINICAL),
    *(PairClaim("claim 4, Table 2", "CA raises words and findings.", "fita", "ifr-tfr", place)
      for place in (BLEU, *_CLINICAL)),
    *(PairClaim("claim 5, Tables 1 and 2", "FITA finds more than KiUT.", "fita", "kiut", place) for place in _CLINICAL),
    *(PairClaim("Figure 1", "CA aligns images and reports.", "fita", "ifr-tfr", place, ours=True)
      for place in (RECALL, POINTING)),
    PairClaim("Figure 3", "Saliency points better than the location prior.", "saliency", "prior", POINTING, ours=True),
    PairClaim("ours", "Signed positions tell sides; |Δ| does not.", "fita", "absolute", TRUE_SIDED, ours=True),
    PairClaim("ours", "Saliency helps IFR find sides.", "fita", "no-saliency", TRUE_SIDED, ours=True),
    PairClaim("ours", "A BERT that reads ahead in training writes worse reports.", "fita", "leaking", BLEU, ours=True),
    PairClaim("ours", "The U-connection is better than the last layer alone.", "fita", "last", TRUE_F1, ours=True),
)  # fmt: skip
