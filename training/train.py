"""Train the encoder: first other languages and misspelt English, then tools.

    python -m training.train BUNDLE OUT [--hold-out] [--seed N]

`BUNDLE` is what `training.prepare` wrote. With `--hold-out` the queries set apart are not trained
on, and the figures
printed at the end tell how well the recipe does on queries it has never seen; without, everything
is trained on and
`OUT/weights.npz` is the model that ships. Takes minutes on one GPU; the same seed gives the same
order of examples.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# pyright: reportUntypedFunctionDecorator=false
# pyright: reportUnknownParameterType=false
# PyTorch is not installed where types are checked.

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from training.model import Encoder, blend, load, schedule, weights_of
from training.texts import Ragged

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TEMPERATURE = 0.05
TWINS = 0.93
"""Documents this alike may both be right: neither is the other's wrong answer."""
_STARTED = time.perf_counter()

Stored = Mapping[str, NDArray[Any]]
"""Arrays of the bundle by name."""
Groups = list[list[list[int]]]
"""Per query, per need: the places of the documents that meet it."""


class Texts:
    """Tokenised texts on the device, batched by number."""

    def __init__(self, ragged: Ragged, limit: int) -> None:
        starts = np.concatenate([[0], ragged.ends[:-1]])
        self.tokens = torch.tensor(ragged.tokens.astype(np.int32), device=DEVICE)
        self.starts = torch.tensor(starts, device=DEVICE)
        self.lengths = torch.tensor(np.minimum(ragged.ends - starts, limit), device=DEVICE)

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """The texts of these numbers, padded, and their lengths."""
        lengths = self.lengths[numbers]
        places = torch.arange(int(lengths.max()), device=DEVICE)
        at = (self.starts[numbers][:, None] + places).clamp(max=len(self.tokens) - 1)
        return torch.where(places < lengths[:, None], self.tokens[at].long(), 0), lengths


def encode(model: Encoder, texts: Texts, numbers: Tensor) -> Tensor:
    """Vectors of some texts, in the precision of training."""
    with torch.autocast(DEVICE, dtype=torch.bfloat16, enabled=DEVICE == "cuda"):
        return model(*texts.batch(numbers))


@torch.no_grad()
def encode_all(model: Encoder, texts: Texts, size: int = 2048) -> Tensor:
    """Vectors of all texts; like lengths together."""
    model.eval()
    vectors = torch.empty(len(texts), 384, device=DEVICE)
    for part in torch.argsort(texts.lengths).split(size):
        vectors[part] = encode(model, texts, part)
    return vectors


def optimiser(model: Encoder, rate: float, rate_of_tokens: float) -> torch.optim.Optimizer:
    """AdamW; embeddings at a rate of their own, no decay on vectors."""
    named = [(name, value) for name, value in model.named_parameters() if name != "tokens.weight"]
    return torch.optim.AdamW(
        [
            {"params": [v for _, v in named if v.ndim > 1], "weight_decay": 0.01, "peak": rate},
            {"params": [v for _, v in named if v.ndim < 2], "weight_decay": 0.0, "peak": rate},
            {"params": [model.tokens.weight], "weight_decay": 0.0, "peak": rate_of_tokens},
        ],
        lr=rate,
        fused=DEVICE == "cuda",
    )


def step(model: Encoder, tuner: torch.optim.Optimizer, loss: Tensor, share: float) -> None:
    """One update at `share` of the peak learning rate."""
    for group in tuner.param_groups:
        group["lr"] = group["peak"] * share
    tuner.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    tuner.step()


class Pairs:
    """English strings, their translations, and misspelt copies of some."""

    def __init__(self, stored: Stored) -> None:
        self.english = Texts(Ragged.read(stored, "english"), 64)
        self.others = Texts(Ragged.read(stored, "others"), 64)
        self.english_of = torch.tensor(stored["english_of"].astype(np.int64), device=DEVICE)
        weights = torch.tensor(stored["weights"].astype(np.float32), device=DEVICE)
        self.cumulative = torch.cumsum(weights / weights.sum(), 0)

    def sample(self, size: int) -> Tensor:
        """Numbers of pairs, rare languages lifted."""
        return torch.searchsorted(self.cumulative, torch.rand(size, device=DEVICE)).clamp(
            max=len(self.others) - 1
        )


def learn_languages(model: Encoder, pairs: Pairs, steps: int, size: int = 1536) -> None:
    """Translations and misspellings move to where the base model puts the English they stand
    for."""
    targets = encode_all(model, pairs.english)
    tuner = optimiser(model, rate=2e-4, rate_of_tokens=2e-3)
    model.train()
    target = torch.arange(size, device=DEVICE)
    for number in range(steps):
        chosen = pairs.sample(size)
        english = pairs.english_of[chosen]
        aims = targets[english]
        found = encode(model, pairs.others, chosen)
        same = english[:, None] == english[None]
        same.fill_diagonal_(False)
        nearness = (found @ aims.T / TEMPERATURE).masked_fill(same, -1e4)
        loss = 4 * (1 - (found * aims).sum(1)).mean() + 0.5 * F.cross_entropy(nearness, target)
        kept = english[: size // 4]
        loss = loss + 4 * (1 - (encode(model, pairs.english, kept) * targets[kept]).sum(1)).mean()
        step(model, tuner, loss, schedule(number, steps))
        if number % 1000 == 999:
            log(f"languages {number + 1}/{steps}: loss {loss.item():.3f}")


class Tools:
    """Documents, queries, which answers which, and who must not be distinguished from whom."""

    def __init__(self, stored: Stored, *, hold_out: bool) -> None:
        self.documents = Texts(Ragged.read(stored, "documents"), 160)
        self.queries = Texts(Ragged.read(stored, "queries"), 96)
        self.document_of = torch.tensor(stored["document_of"].astype(np.int64), device=DEVICE)
        self.weights = stored["weights"]
        self.server_of: list[int] = stored["server_of"].tolist()
        self.held = stored["held"].astype(bool)
        self.trained = np.flatnonzero(~self.held) if hold_out else np.arange(len(self.held))

    def batches(self, chance: np.random.Generator, size: int, block: int = 8) -> Iterator[Tensor]:
        """One pass over the queries, each as often as it weighs, in blocks of one server: siblings
        are hard to tell."""
        of_server: defaultdict[int, list[int]] = defaultdict(list)
        for query in self.trained.tolist():
            weight = float(self.weights[query])
            times = int(weight) + int(chance.random() < weight % 1)
            of_server[self.server_of[query]] += [query] * times
        blocks: list[list[int]] = []
        for queries in of_server.values():
            mixed = chance.permutation(queries).tolist()
            blocks += [mixed[at : at + block] for at in range(0, len(mixed), block)]
        order = [query for at in chance.permutation(len(blocks)) for query in blocks[at]]
        for at in range(0, len(order) - size + 1, size):
            yield torch.tensor(order[at : at + size], device=DEVICE)


@torch.no_grad()
def hard_negatives(model: Encoder, tools: Tools, width: int = 40) -> tuple[Tensor, Tensor]:
    """For each query, the wrong documents it is nearest to, and which of them really are wrong."""
    documents, queries = encode_all(model, tools.documents), encode_all(model, tools.queries)
    near, wrong = [], []
    for part in torch.arange(len(queries), device=DEVICE).split(4096):
        own = documents[tools.document_of[part]]
        values, found = (queries[part] @ documents.T).topk(width, 1)
        alike = (documents[found] * own[:, None]).sum(-1)
        right = (queries[part] * own).sum(1, keepdim=True)
        near.append(found)
        wrong.append(
            (found != tools.document_of[part][:, None]) & (alike < TWINS) & (values < 0.92 * right)
        )
    return torch.cat(near), torch.cat(wrong)


def learn_tools(
    model: Encoder, tools: Tools, pairs: Pairs, *, rate: float, epochs: int, size: int, seed: int
) -> None:
    """Queries move to their tools and away from the nearest others; translations stay where their
    English is."""
    chance = np.random.default_rng(seed)
    near, wrong = hard_negatives(model, tools)
    twins_of = encode_all(model, tools.documents)
    plan = [batch for _ in range(epochs) for batch in tools.batches(chance, size)]
    tuner = optimiser(model, rate=rate, rate_of_tokens=rate * 2)
    model.train()
    target = torch.arange(size, device=DEVICE)
    for number, queries in enumerate(plan):
        # Rounding triples the cost of a step; the last quarter is enough to get used to it.
        model.set_rounding(number >= len(plan) * 3 // 4)
        own = tools.document_of[queries]
        chances = torch.rand(near[queries].shape, device=DEVICE) - 0.12 * torch.arange(
            near.shape[1], device=DEVICE
        )
        picked = chances.masked_fill(~wrong[queries], -9).argmax(1, keepdim=True)
        usable = wrong[queries].gather(1, picked)[:, 0]
        hard = torch.where(usable, near[queries].gather(1, picked)[:, 0], own)
        asked = encode(model, tools.queries, queries)
        right = encode(model, tools.documents, own)
        misleading = encode(model, tools.documents, hard)
        likeness = asked @ right.T / TEMPERATURE
        alike = (twins_of[own] @ twins_of[own].T > TWINS) | (own[:, None] == own[None])
        alike.fill_diagonal_(False)
        fooled = asked @ misleading.T / TEMPERATURE
        excused = (twins_of[own] @ twins_of[hard].T > TWINS) | ~usable[None]
        forward = torch.cat(
            [likeness.masked_fill(alike, -1e4), fooled.masked_fill(excused, -1e4)], 1
        )
        loss = 0.5 * F.cross_entropy(forward, target)
        loss = loss + 0.5 * F.cross_entropy(likeness.masked_fill(alike, -1e4).T, target)
        loss = loss + 0.3 * _translation_loss(model, pairs, size // 2)
        step(model, tuner, loss, schedule(number, len(plan)))
        if number % 100 == 99:
            log(f"tools {number + 1}/{len(plan)}: loss {loss.item():.3f}")
    model.set_rounding(False)


def _translation_loss(model: Encoder, pairs: Pairs, size: int) -> Tensor:
    chosen = pairs.sample(size)
    english = pairs.english_of[chosen]
    likeness = (
        encode(model, pairs.others, chosen) @ encode(model, pairs.english, english).T / TEMPERATURE
    )
    same = english[:, None] == english[None]
    same.fill_diagonal_(False)
    return F.cross_entropy(likeness.masked_fill(same, -1e4), torch.arange(size, device=DEVICE))


def evaluate(
    model: Encoder, tools: Tools, sets: Mapping[str, Mapping[str, Groups]], stored: Stored
) -> None:
    """R@1/5/10 of the vectors alone, as they will be rounded: the servers set apart, then every set
    of the bundle."""
    model.set_rounding(True)
    documents = encode_all(model, tools.documents)
    catalog = torch.tensor(stored["catalog"].astype(np.int64), device=DEVICE)
    place_of = {int(document): place for place, document in enumerate(catalog.tolist())}
    listed = np.isin(stored["document_of"], stored["catalog"])
    foreign, judged = (
        stored["foreign"].astype(bool),
        tools.held & listed & ~stored["noisy"].astype(bool),
    )
    for kind in ("held, English", "held, other languages"):
        marked = judged & (foreign == kind.endswith("languages"))
        numbers = torch.tensor(np.flatnonzero(marked), device=DEVICE)
        if len(numbers):
            vectors = torch.cat(
                [encode(model, tools.queries, part).detach() for part in numbers.split(2048)]
            )
            groups = [
                [[place_of[int(document)]]] for document in tools.document_of[numbers].tolist()
            ]
            log(
                f"{kind:24} n={len(numbers):5} R@1/5/10 "
                f"{_recalls(vectors @ documents[catalog].T, groups)}"
            )
    for name, facts in sets.items():
        texts = Texts(Ragged.read(stored, f"{name}.documents"), 160)
        queries = encode_all(model, Texts(Ragged.read(stored, f"{name}.queries"), 128))
        log(
            f"{name:24} n={len(queries):5} R@1/5/10 "
            f"{_recalls(queries @ encode_all(model, texts).T, facts['groups'])}"
        )
    model.set_rounding(False)


def _recalls(scores: Tensor, groups: Groups) -> str:
    best = scores.topk(min(10, scores.shape[1]), 1).indices.tolist()
    shares: list[float] = []
    for depth in (1, 5, 10):
        hits = [
            sum(any(place in top[:depth] for place in group) for group in wanted) / len(wanted)
            for top, wanted in zip(best, groups, strict=True)
            if wanted
        ]
        shares.append(100 * float(np.mean(hits)))
    return " / ".join(f"{share:.1f}" for share in shares)


def log(line: str) -> None:
    print(f"[{time.perf_counter() - _STARTED:6.1f} s] {line}", flush=True)


def main() -> None:
    """Train and tell."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bundle", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument(
        "--hold-out", action="store_true", help="leave the queries set apart out of training"
    )
    parser.add_argument("--base", type=Path, help="the base weights, if not in the bundle")
    parser.add_argument(
        "--start", type=Path, help="weights after the languages, to begin with the tools"
    )
    parser.add_argument("--language-steps", type=int, default=6_000)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rate", type=float, default=7e-5)
    parser.add_argument("--batch", type=int, default=1_024)
    parser.add_argument(
        "--share", type=float, default=0.9, help="of the tuned weights in the final blend"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    facts = json.loads((options.bundle / "facts.json").read_text())
    stored = dict(np.load(options.bundle / "tools.npz"))
    pairs = Pairs(dict(np.load(options.bundle / "pairs.npz")))
    tools = Tools(stored, hold_out=options.hold_out)
    weights = np.load(options.start or options.base or options.bundle / "base.npz")
    model = load(weights, [] if options.start else facts["parts"]).to(DEVICE)
    log(
        f"{len(tools.queries):,} queries, {len(tools.documents):,} documents, "
        f"{len(pairs.others):,} pairs on {DEVICE}"
    )
    if not options.start:
        learn_languages(model, pairs, options.language_steps)
        evaluate(model, tools, facts["sets"], stored)
        np.savez(options.out / "languages.npz", **weights_of(model))
    before = {name: value.detach().clone() for name, value in model.state_dict().items()}
    learn_tools(
        model,
        tools,
        pairs,
        rate=options.rate,
        epochs=options.epochs,
        size=options.batch,
        seed=options.seed,
    )
    model.load_state_dict(blend(before, model.state_dict(), options.share))
    evaluate(model, tools, facts["sets"], stored)
    np.savez(options.out / "weights.npz", **weights_of(model))


if __name__ == "__main__":
    main()
