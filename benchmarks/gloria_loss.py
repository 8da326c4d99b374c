"""Time GLoRIA's local loss, forward and backward, in four implementations on the same numbers.

- "loop": caption by caption, with the context of every word formed, as the paper writes it down.
- "all at once": without contexts, but with all pairs in memory.
- "blocks": the implementation of `rightlung.models.gloria`, block by block with gradient checkpointing.
- "compiled": the same with `torch.compile`.

    python benchmarks/gloria_loss.py                       # small, on a CPU
    python benchmarks/gloria_loss.py --device cuda --json gloria_loss.json

The arithmetic floor is the time of the products that no implementation can avoid (scores and their two gradients,
attention times Gram matrix and its gradient) at the device's peak rate for the precision. Settings: 19 x 19 patches, 25
words, 768 dimensions, two softmaxes, no padding. With --shortest, texts differ in length and are padded; the floor
ignores that.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rightlung.models.gloria.attention import local_similarity

PEAK_TERAFLOPS = {"H200": {"fp32": 67.0, "tf32": 495.0, "bf16": 989.0}}
"""Dense rates from the maker's data sheet, by a part of the device's name."""

Similarity = Callable[[Tensor, Tensor, Tensor], Tensor]


def loop(words: Tensor, attention_mask: Tensor, patches: Tensor) -> Tensor:
    """Caption by caption, with contexts."""
    rows = []
    for text in range(len(words)):
        query = words[text, : int(attention_mask[text].sum())]
        scores = torch.einsum("wd,ird->iwr", query, patches).float()
        attention = (4.0 * scores.softmax(dim=1)).softmax(dim=-1)
        context = torch.einsum("iwr,ird->iwd", attention.to(patches.dtype), patches).float()
        cosine = torch.cosine_similarity(query.float()[None], context, dim=-1)
        rows.append(torch.log(torch.exp(5.0 * cosine).sum(1)))
    return torch.stack(rows)


def all_at_once(words: Tensor, attention_mask: Tensor, patches: Tensor) -> Tensor:
    """All pairs in memory, without contexts."""
    scores = torch.einsum("twd,ird->tiwr", words, patches).float()
    hidden = ~attention_mask[:, None, :, None]
    attention = (4.0 * scores.masked_fill(hidden, -math.inf).softmax(dim=2)).softmax(dim=-1)
    gram = patches @ patches.transpose(1, 2)
    length = (torch.einsum("tiwr,irs->tiws", attention.to(gram.dtype), gram).float() * attention).sum(-1).sqrt()
    cosine = (attention * scores).sum(-1) / (length * words.float().norm(dim=-1)[:, None])
    similarity: Tensor = (5.0 * cosine).masked_fill(~attention_mask[:, None], -math.inf).logsumexp(dim=2)
    return similarity


def blocks(words: Tensor, attention_mask: Tensor, patches: Tensor) -> Tensor:
    """The implementation of the package."""
    return local_similarity(words, attention_mask, patches, True, 4.0)


def compiled(words: Tensor, attention_mask: Tensor, patches: Tensor) -> Tensor:
    """The same, compiled."""
    return local_similarity(words, attention_mask, patches, True, 4.0, compile=True)


WAYS: dict[str, Similarity] = {"loop": loop, "all at once": all_at_once, "blocks": blocks, "compiled": compiled}


def floor_flops(batch: int, words: int, patches: int, width: int) -> float:
    """Return the operations of the unavoidable products, forward and backward, Gram matrices included."""
    scores, gram = 2.0 * batch**2 * words * patches * width, 2.0 * batch**2 * words * patches**2
    return 3 * scores + 2 * gram + 3 * 2.0 * batch * patches**2 * width


def measure(way: Similarity, batch: int, precision: str, arguments: argparse.Namespace) -> dict[str, float | str]:
    """Return the shortest of several runs, the peak memory, and the loss."""
    device = torch.device(arguments.device)
    generator = torch.Generator().manual_seed(0)
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    shapes = (batch, arguments.words, arguments.width), (batch, arguments.patches, arguments.width)
    words, patches = (
        (0.1 * torch.randn(*shape, generator=generator)).to(device, kind).requires_grad_() for shape in shapes
    )
    lengths = torch.randint(arguments.shortest or arguments.words, arguments.words + 1, (batch,), generator=generator)
    attention_mask = (torch.arange(arguments.words) < lengths[:, None]).to(device)
    right = torch.arange(batch, device=device)
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    on_gpu = device.type == "cuda"

    def once() -> Tensor:
        words.grad = patches.grad = None
        logits = 10.0 * way(words, attention_mask, patches)
        loss = cross_entropy(logits, right) + cross_entropy(logits.T, right)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    try:
        loss = float(once())
        once()
        if on_gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated() if on_gpu else 0
        times = []
        for _ in range(arguments.repeats):
            start = time.perf_counter()
            once()
            if on_gpu:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
    except torch.OutOfMemoryError:
        return {"error": "out of memory"}
    finally:
        if on_gpu:
            torch.cuda.empty_cache()
    peak = (torch.cuda.max_memory_allocated() - held) / 2**30 if on_gpu else math.nan
    return {"ms": 1000 * min(times), "peak_gib": peak, "loss": loss}


def main() -> None:
    """Print a table, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batches", type=int, nargs="+", default=None)
    parser.add_argument("--precisions", nargs="+", default=None)
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=None)
    parser.add_argument("--words", type=int, default=25)
    parser.add_argument("--shortest", type=int, default=None, help="shortest text in words (default: --words)")
    parser.add_argument("--patches", type=int, default=361)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args()
    on_gpu = arguments.device.startswith("cuda")
    name = torch.cuda.get_device_name() if on_gpu else "CPU"
    peaks = next((rates for part, rates in PEAK_TERAFLOPS.items() if part in name), {})
    ways = arguments.ways or [way for way in WAYS if on_gpu or way != "compiled"]
    results = []
    print(f"{name}, torch {torch.__version__}: forward + backward, shortest of {arguments.repeats}")
    print(f"{'batch':>5} {'precision':>9} {'way':>12} {'ms':>9} {'peak GiB':>9} {'x floor':>8} {'loss':>9}")
    for batch in arguments.batches or ([48, 128, 512] if on_gpu else [8]):
        for precision in arguments.precisions or (["fp32", "tf32", "bf16"] if on_gpu else ["fp32"]):
            flops = floor_flops(batch, arguments.words, arguments.patches, arguments.width)
            floor = 1e3 * flops / (peaks[precision] * 1e12) if precision in peaks else math.nan
            for way in ways:
                found = measure(WAYS[way], batch, precision, arguments)
                results.append({"batch": batch, "precision": precision, "way": way, "floor_ms": floor, **found})
                if "error" in found:
                    print(f"{batch:>5} {precision:>9} {way:>12} {found['error']:>9}", flush=True)
                    continue
                ms, peak, loss = (float(found[key]) for key in ("ms", "peak_gib", "loss"))
                print(
                    f"{batch:>5} {precision:>9} {way:>12} {ms:>9.2f} {peak:>9.2f} {ms / floor:>8.2f} {loss:>9.4f}",
                    flush=True,
                )
    if arguments.json is not None:
        arguments.json.write_text(
            json.dumps({"device": name, "torch": torch.__version__, "results": results}, indent=1)
        )


if __name__ == "__main__":
    main()
