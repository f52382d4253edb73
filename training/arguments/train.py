"""Trains the argument reader on a GPU, in minutes.

    python -m training.arguments.train PREPARED.json BASE.npz OUT [--hold-out] [--steps N]

Each step reads utterances as they are, or joined by two and three with the words that people put
between: the parameters of one of them are to be found, and where each begins. Inputs of joined
utterances are shuffled together. With --hold-out a tenth of the servers is kept out and measured.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# pyright: reportUnknownParameterType=false
# PyTorch is not installed where types are checked.

import argparse
import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from portico.workflows.planning.argument_sequence import (
    QUESTION,
    ParameterWords,
    SpecialTokens,
    build_sequence,
)
from training.arguments.model import ArgumentReader, get_weights, load_encoder
from training.model import schedule

BATCH = 48
MAX_PARAMETERS = 24
ROUNDED_SHARE = 0.25
IGNORED = -100
UNREAD_SHARE = 0.04
"""Said words that are replaced by the unknown word, so that no single one is relied on."""


class Sampler:
    """Makes sequences of utterances."""

    def __init__(self, data: dict[str, Any], examples: list[Any], seed: int) -> None:
        self.data = data
        self.examples = examples
        self.random = random.Random(seed)
        self.special = SpecialTokens(*data["special"])
        self.marks = data["marks"]
        self.parameters = {
            name: [
                ParameterWords(
                    tuple(map(tuple, one["text"])),
                    tuple(tuple(map(tuple, option)) for option in one["options"]),
                )
                for one in tool["parameters"]
            ]
            for name, tool in data["tools"].items()
        }
        self.stops = [tuple(self.marks[mark]) for mark in ".!?,;"]
        self.connectors = [
            (text, [tuple(word) for word in words])
            for text, words in self.marks.items()
            if len(text) > 1
        ]

    def sample(self, examples: list[Any]) -> dict[str, Any]:
        """One sequence of these utterances joined; the parameters are those of one of them."""
        pick = self.random
        asked = pick.randrange(len(examples))
        said: list[Any] = []
        begins: list[int] = []
        owner: list[int] = []
        starts: list[int] = []
        for number, example in enumerate(examples):
            words = [tuple(word) for word in example["words"]]
            if number:
                said, owner, begins = self._connect(said, owner, begins, words)
            starts.append(len(said))
            said += words
            owner += [number] * len(words)
            begins += [1 if number else 0] + [0] * (len(words) - 1)
        word_count = len(said)
        in_clause = self._choose_clause(owner, asked)
        regions = self._add_inputs(said, in_clause, examples)
        tool = examples[asked]["tool"]
        order = list(range(len(self.parameters[tool])))
        if pick.random() < 0.4:
            pick.shuffle(order)
        order = order[:MAX_PARAMETERS]
        params = [self.parameters[tool][at] for at in order]
        words = [tuple(word) for word in self.data["tools"][tool]["words"]]
        sequence = build_sequence(self.special, said, in_clause, words, params)
        labels: list[tuple[int, int]] = []
        for place, at in enumerate(order[: len(sequence.marks)]):
            label = examples[asked]["labels"][at]
            labels.append(self._locate(label, sequence, place, starts[asked], regions, asked))
        return {
            "sequence": sequence,
            "labels": labels,
            "begins": begins,
            "words": said[:word_count],
            "order": order,
            "asked": asked,
        }

    def _connect(
        self, said: list[Any], owner: list[int], begins: list[int], words: list[Any]
    ) -> tuple[list[Any], list[int], list[int]]:
        """Put what people say between two things to do behind the words so far."""
        text, connector = self.random.choice(self.connectors)
        if said and said[-1] in self.stops:
            if text[0] in ".;," or self.random.random() < 0.5:
                connector = connector[1:] if text[0] in ".;," else []
                return (
                    said + connector,
                    owner + [owner[-1]] * len(connector),
                    begins + [0] * len(connector),
                )
            said, owner, begins = said[:-1], owner[:-1], begins[:-1]
        return (
            said + connector,
            owner + [owner[-1]] * len(connector),
            begins + [0] * len(connector),
        )

    def _choose_clause(self, owner: list[int], asked: int) -> list[bool]:
        """The words of the step's clause; sometimes all of them, sometimes a little off."""
        chance = self.random.random()
        if chance < 0.2:
            return [True] * len(owner)
        shift = self.random.randint(-2, 2) if chance < 0.4 else 0
        return [owner[min(max(at + shift, 0), len(owner) - 1)] == asked for at in range(len(owner))]

    def _add_inputs(
        self, said: list[Any], in_clause: list[bool], examples: list[Any]
    ) -> dict[tuple[int, int], tuple[int, int]]:
        """Append all inputs; where each one's value stands."""
        given = [
            (number, at, one)
            for number, example in enumerate(examples)
            for at, one in enumerate(example["inputs"])
        ]
        self.random.shuffle(given)
        regions: dict[tuple[int, int], tuple[int, int]] = {}
        for count, (number, at, one) in enumerate(given):
            said.append(tuple(self.marks[";" if count else "|"]))
            said += [tuple(word) for word in one["name"]]
            said.append(tuple(self.marks["="]))
            first = len(said)
            said += [tuple(word) for word in one["value"]] or [()]
            regions[number, at] = (first, len(said) - 1)
        in_clause += [True] * (len(said) - len(in_clause))
        return regions

    def _locate(
        self, label: Any, sequence: Any, place: int, start: int, regions: Any, asked: int
    ) -> tuple[int, int]:
        if label is None:
            return (0, 0)
        if label == "skip":
            return (IGNORED, IGNORED)
        if label[0] == "option":
            first, last = sequence.options[place][label[1]]
            return (first, last) if first >= 0 else (IGNORED, IGNORED)
        if label[0] == "input":
            first, last = regions[asked, label[1]]
        else:
            first, last = start + label[1], start + label[2]
        first, last = sequence.said[first], sequence.said[last]
        return (first, last) if first >= 0 and last >= 0 else (IGNORED, IGNORED)

    def draw(self) -> dict[str, Any]:
        """A random sequence: of one, two or three utterances of one kind."""
        count = self.random.choices((1, 2, 3), (0.4, 0.35, 0.25))[0]
        first = self.random.choice(self.examples)
        kind = bool(first["inputs"])
        chosen = [first]
        while len(chosen) < count:
            other = self.random.choice(self.examples)
            if bool(other["inputs"]) == kind:
                chosen.append(other)
        self.random.shuffle(chosen)
        return self.sample(chosen)


def collate(samples: list[dict[str, Any]], special: SpecialTokens) -> dict[str, Tensor]:
    """A batch of sequences with their labels, and of the words alone with where they begin."""
    longest = max(len(one["sequence"].ids) for one in samples)
    count = max(len(one["labels"]) for one in samples)
    ids = np.zeros((len(samples), longest), np.int64)
    kinds = np.zeros_like(ids)
    marks = np.zeros((len(samples), count), np.int64)
    labels = np.full((len(samples), count, 2), IGNORED, np.int64)
    allowed = np.zeros((len(samples), count, longest), bool)
    texts: list[list[int]] = []
    places: list[list[int]] = []
    for row, one in enumerate(samples):
        sequence = one["sequence"]
        ids[row, : len(sequence.ids)] = sequence.ids
        kinds[row, : len(sequence.ids)] = sequence.kinds
        marks[row, : len(sequence.marks)] = sequence.marks
        labels[row, : len(one["labels"])] = one["labels"]
        said = [at for at in sequence.said if at >= 0]
        for place, options in enumerate(sequence.options):
            allowed[row, place, [0, *said]] = True
            for first, last in options:
                if first >= 0:
                    allowed[row, place, [first, last]] = True
        allowed[row, len(sequence.options) :, 0] = True
        text = [special.first]
        at: list[int] = []
        for word in one["words"]:
            at.append(len(text))
            text += word
        texts.append([*text[:200], special.separator])
        places.append([place for place in at if place < 200])
    width = max(map(len, texts))
    text_ids = np.zeros((len(samples), width), np.int64)
    begins = np.full((len(samples), width), -1.0, np.float32)
    for row, one in enumerate(samples):
        text_ids[row, : len(texts[row])] = texts[row]
        for number, place in enumerate(places[row]):
            begins[row, place] = one["begins"][number]
    found = {
        "ids": ids,
        "kinds": kinds,
        "marks": marks,
        "labels": labels,
        "allowed": allowed,
        "text": text_ids,
        "begins": begins,
    }
    return {name: torch.from_numpy(value) for name, value in found.items()}


class Batches(IterableDataset[Any]):
    """Endless batches, other ones in each process."""

    def __init__(self, data: dict[str, Any], examples: list[Any], seed: int) -> None:
        self.data, self.examples, self.seed = data, examples, seed

    def __iter__(self) -> Any:
        worker = torch.utils.data.get_worker_info()
        sampler = Sampler(self.data, self.examples, self.seed * 1000 + (worker.id if worker else 0))
        while True:
            yield collate([sampler.draw() for _ in range(BATCH)], sampler.special)


def compute_loss(model: ArgumentReader, batch: dict[str, Tensor]) -> Tensor:
    """Of the pointers, and of where clauses begin."""
    stream = model(batch["ids"], batch["kinds"])
    total = torch.zeros((), device=stream.device)
    for scores, labels in zip(
        model.point(stream, batch["marks"]), batch["labels"].unbind(-1), strict=True
    ):
        scores = scores.float().masked_fill(~batch["allowed"], -1e4)
        total = total + F.cross_entropy(
            scores.flatten(0, 1), labels.flatten(), ignore_index=IGNORED
        )
    words = model(batch["text"], torch.zeros_like(batch["text"]))
    found = model.begins(words)[..., 0].float()
    known = batch["begins"] >= 0
    weight = torch.where(batch["begins"] > 0, 3.0, 1.0)[known]
    loss = F.binary_cross_entropy_with_logits(found[known], batch["begins"][known], weight=weight)
    return total + 2 * loss


def measure(model: ArgumentReader, data: dict[str, Any], examples: list[Any]) -> dict[str, float]:
    """How many values are exactly right, and how many beginnings are found, on these."""
    sampler = Sampler(data, examples, 7)
    counts: dict[str, int] = {}

    def count(name: str, amount: int) -> None:
        counts[name] = counts.get(name, 0) + amount

    model.eval()
    for joined in (1, 2, 3):
        for _ in range(40):
            samples: list[Any] = []
            for _ in range(BATCH):
                first = sampler.random.choice(examples)
                same = [one for one in examples if bool(one["inputs"]) == bool(first["inputs"])]
                chosen = [first, *sampler.random.sample(same, joined - 1)]
                samples.append(sampler.sample(chosen))
            batch = {
                name: value.cuda() for name, value in collate(samples, sampler.special).items()
            }
            with torch.no_grad():
                stream = model(batch["ids"], batch["kinds"])
                starts, ends = model.point(stream, batch["marks"])
                words = model(batch["text"], torch.zeros_like(batch["text"]))
                begun = model.begins(words)[..., 0] > 0
            guesses = [
                part.float().masked_fill(~batch["allowed"], -1e4).argmax(-1)
                for part in (starts, ends)
            ]
            labels = batch["labels"]
            right = (guesses[0] == labels[..., 0]) & (guesses[1] == labels[..., 1])
            given = labels[..., 0] > 0
            absent = labels[..., 0] == 0
            count(f"given{joined}", int(given.sum()))
            count(f"given right{joined}", int((given & right).sum()))
            count(f"absent{joined}", int(absent.sum()))
            count(f"absent right{joined}", int((absent & right).sum()))
            known = batch["begins"] >= 0
            truth = batch["begins"] > 0
            count(f"begins{joined}", int(truth.sum()))
            count(f"begins found{joined}", int((truth & begun).sum()))
            count(f"begins wrong{joined}", int((known & ~truth & begun).sum()))
    model.train()
    return counts  # pyright: ignore[reportReturnType]


def main() -> None:
    """Train, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("prepared", type=Path)
    parser.add_argument("base", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--hold-out", action="store_true")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=1.5e-4)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--workers", type=int, default=5)
    options = parser.parse_args()
    data = json.loads(options.prepared.read_text())
    torch.manual_seed(1)
    servers = sorted({example["tool"].split("/")[0] for example in data["examples"]})
    held = set(random.Random(5).sample(servers, len(servers) // 10)) if options.hold_out else set()
    held_examples = [one for one in data["examples"] if one["tool"].split("/")[0] in held]
    examples = [one for one in data["examples"] if one["tool"].split("/")[0] not in held]
    with np.load(options.base) as stored:
        encoder = load_encoder({name: stored[name] for name in stored.files})
    encoder.layers = encoder.layers[: options.layers]
    model = ArgumentReader(encoder).cuda()
    slow = [p for n, p in model.named_parameters() if p.requires_grad and "point" not in n]
    heads = [*model.pointers.parameters()]
    groups = [{"params": slow, "lr": options.rate}, {"params": heads, "lr": 5 * options.rate}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: schedule(step, options.steps)
    )
    loader = DataLoader(
        Batches(data, examples, 1), batch_size=None, num_workers=options.workers, prefetch_factor=8
    )
    started = time.time()
    total = 0.0
    for step, batch in enumerate(loader):
        if step == options.steps:
            break
        if step == int(options.steps * (1 - ROUNDED_SHARE)):
            model.set_rounding(True)
        batch = {name: value.cuda(non_blocking=True) for name, value in batch.items()}
        unread = torch.rand_like(batch["ids"], dtype=torch.float) < UNREAD_SHARE
        unread &= (batch["kinds"] < QUESTION) & (batch["ids"] > 0)
        batch["ids"] = batch["ids"].masked_fill(unread, data["unknown"])
        with torch.autocast("cuda", torch.bfloat16):
            loss = compute_loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        total += loss.item()
        if step % 250 == 249:
            print(step + 1, round(total / 250, 3), f"{time.time() - started:.0f} s", flush=True)
            total = 0.0
    if held_examples:
        print(len(held_examples), measure(model, data, held_examples), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out / "weights.npz", **get_weights(model))


if __name__ == "__main__":
    main()
