"""What eCLIP claims, and what we ask besides, each judged by a paired difference of two variants."""

from __future__ import annotations

from collections.abc import Iterator

from rightlung.reproduce.eclip.files import GEOMETRY, RELIANCE
from rightlung.reproduce.eclip.variants import HOSTS
from rightlung.reproduce.pair_claims import PairClaim, Place
from rightlung.scoring.text_retrieval import IMAGE_TO_TEXT, TEXT_TO_IMAGE

ACCURACY: Place = ("5x", "class_accuracy")
AUROC: Place = ("zero-shot", "finding_auroc")
POINTING: Place = ("instances", "pointing")
RECALL: Place = (IMAGE_TO_TEXT, "recall@10")
RECALL_BACK: Place = (TEXT_TO_IMAGE, "recall@10")
PROBE: Place = ("probe-1", "finding_auroc")
SHORTCUT: Place = (RELIANCE, "finding_auroc")
GAP, ALIGNMENT, UNIFORMITY = (GEOMETRY, "gap"), (GEOMETRY, "alignment"), (GEOMETRY, "uniformity_images")
TITLES = {ACCURACY: "accuracy, 5 classes", AUROC: "zero-shot AUROC", POINTING: "pointing",
          RECALL: "R@10, reports by images", RECALL_BACK: "R@10, images by reports", PROBE: "probe, 1 % of labels",
          SHORTCUT: "AUROC, planted − by chance", GAP: "modality gap × 100", ALIGNMENT: "alignment × 100",
          UNIFORMITY: "uniformity of images × 100"}  # fmt: skip


def _of_hosts() -> Iterator[PairClaim]:
    for host in ("clip", "gloria"):
        title = HOSTS[host]
        pairs = [
            ("expert images help", "expert", ""),
            ("expert images help after training, beyond training on", "expert-post", "continued"),
            ("post-trained with expert images, the host is better than before", "expert-post", ""),
            ("expert images help more than naive ones", "expert", "naive"),
            ("m³-mix helps", "m3", ""),
            ("DACL helps", "dacl", ""),
            ("expert images help more than m³-mix", "expert", "m3"),
        ]
        for text, first, second in pairs:
            other = f"{host}-{second}".strip("-")
            yield PairClaim("Table 1", f"{title}: {text}.", f"{host}-{first}", other, ACCURACY)
        yield PairClaim("Table 1", f"{title}: expert images help.", f"{host}-expert", host, AUROC)
    for host, title in HOSTS.items():
        if host not in ("clip", "gloria"):
            yield PairClaim("Table 1", f"{title}: expert images help.", f"{host}-expert", host, ACCURACY)


def _of_tied() -> Iterator[PairClaim]:
    for host in ("clip", "gloria"):
        who, tied = HOSTS[host], f"{host}-tied"
        yield PairClaim(
            "aim", f"{who} + tied points at least 5 points better.", tied, host, POINTING, True, "much higher"
        )
        text = f"{who} + tied: zero-shot is no worse (interval above −1 point)."
        yield PairClaim("aim", text, tied, host, AUROC, True, "no worse")
    for control, maps in (("tied-random", "random fixations"), ("tied-ones", "maps of ones")):
        yield PairClaim(
            "aim, control", f"CLIP + tied points better than with {maps}.", "clip-tied", control, POINTING, True
        )


CLAIMS: tuple[PairClaim, ...] = (
    *_of_hosts(),
    PairClaim("Ablation", "Gaze helps more than random fixations.", "clip-expert", "map-random", ACCURACY),
    PairClaim("Ablation", "Mixup helps.", "ablation-e-m", "ablation-e", ACCURACY),
    PairClaim("Ablation", "The curriculum helps.", "ablation-e-m-c", "ablation-e-m", ACCURACY),
    PairClaim("Ablation", "Priming helps.", "clip-expert", "ablation-e-m-c", ACCURACY),
    PairClaim("Ablation", "Attention is better than a mask.", "ablation-e", "ablation-mask", ACCURACY),
    PairClaim("Figure 1", "eCLIP is ahead of DACL after few steps.", "clip-expert-90", "clip-dacl-90", AUROC),
    PairClaim("Figure 1", "eCLIP is ahead of m³-mix with few labels.", "clip-expert", "clip-m3", PROBE),
    PairClaim("Retrieval", "eCLIP finds reports better than CLIP.", "clip-expert", "clip", RECALL),
    PairClaim("Retrieval", "eCLIP finds images better than CLIP.", "clip-expert", "clip", RECALL_BACK),
    PairClaim("Geometry", "eCLIP has a smaller modality gap (no merit by itself).", "clip-expert", "clip", GAP,
              better="lower"),
    PairClaim("Geometry", "eCLIP aligns images and reports more closely.", "clip-expert", "clip", ALIGNMENT,
              better="lower"),
    PairClaim("Geometry", "eCLIP spreads images more evenly.", "clip-expert", "clip", UNIFORMITY, better="lower"),
    PairClaim("ours", "Gaze changes where the model looks.", "clip-expert", "clip", POINTING, True),
    PairClaim("ours", "Exact masks change where the model looks.", "map-sentence-mask", "clip", POINTING, True),
    PairClaim("ours", "Gaze is better than the same images without maps.", "clip-expert", "map-none", AUROC, True),
    PairClaim("ours", "Gaze is better than as many more plain pairs.", "clip-expert", "clip-naive-plain", AUROC, True),
    PairClaim("ours", "10,000 gaze maps are better than 1,080.", "map-gaze-10000", "clip-expert", AUROC, True),
    PairClaim("ours", "1,080 gaze maps are better than 100.", "clip-expert", "map-gaze-100", AUROC, True),
    PairClaim("ours", "10,000 exact masks are better than 1,080.", "map-sentence-mask-10000", "map-sentence-mask",
              AUROC, True),
    PairClaim("ours", "Expert images reduce reliance on a planted word.", "shortcut-clip-expert", "shortcut-clip",
              SHORTCUT, True, "lower"),
    PairClaim("ours", "Tied reduces reliance on a planted word.", "shortcut-clip-tied", "shortcut-clip", SHORTCUT, True,
              "lower"),
    *_of_tied(),
)  # fmt: skip
