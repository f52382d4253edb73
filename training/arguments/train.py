"""Trains the argument reader on a GPU, in minutes.

    python -m training.arguments.train PREPARED.json BASE.npz OUT [--hold-out] [--fold N] …

Each step reads utterances as they are, or joined by two and three with the words that people put
between: the parameters of one of them are to be found, and where each begins. Inputs of joined
utterances are shuffled together. Beside them it reads tools that a search finds for such words,
without parameters: the one that is meant is to be told from the others.

With --hold-out a tenth of the servers is kept out and measured. With --fold 0 or 1, tasks that are
about a server of that half are left out, so that they can be planned by what has not seen them.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# pyright: reportUnknownParameterType=false
# PyTorch is not installed where types are checked.

import argparse
import json
import random
import time
import zlib
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

BATCH = 40
MAX_PARAMETERS = 24
ROUNDED_SHARE = 0.2
IGNORED = -100
CHOICES = 20
OTHERS = 6
"""Texts in a batch of which the tool is to be told, and tools it is told from."""
TASK_SHARE = 0.3
"""Of examples that are steps of tasks: there are few, but they are what plans are made of."""
UNREAD_SHARE = 0.04
"""Said words that are replaced by the unknown word, so that no single one is relied on."""


class Sampler:
    """Makes sequences of utterances."""

    def __init__(
        self, data: dict[str, Any], examples: list[Any], choices: list[Any], seed: int
    ) -> None:
        self.data = data
        self.examples = [one for one in examples if not one["task"]]
        self.task_examples = [one for one in examples if one["task"]]
        self.choices = [one for one in choices if not one["task"]]
        self.task_choices = [one for one in choices if one["task"]]
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
        if "clause" in examples[asked]:
            first, last = examples[asked]["clause"]
            owner = [int(first <= at <= last) - 1 for at in range(word_count)]
            begins = [int(at in examples[asked]["begins"]) for at in range(word_count)]
        in_clause = self._choose_clause(owner, asked)
        regions = self._add_inputs(said, in_clause, examples)
        if "tool" not in examples[asked]:
            return {"said": said, "in_clause": in_clause, "asked": asked}
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
        if self.task_examples and self.random.random() < TASK_SHARE:
            return self.sample([self.random.choice(self.task_examples)])
        chosen = self._join(self.random.choice(self.examples), self.examples, count)
        self.random.shuffle(chosen)
        return self.sample(chosen)

    def _join(self, first: Any, examples: list[Any], count: int) -> list[Any]:
        chosen = [first]
        while len(chosen) < count:
            other = self.random.choice(examples)
            if bool(other["inputs"]) == bool(first["inputs"]):
                chosen.append(other)
        return chosen

    def draw_choice(self) -> list[Any]:
        """Sequences of one text with tools: first the one that is meant, if any is."""
        if self.task_choices and self.random.random() < TASK_SHARE:
            choice = self.random.choice(self.task_choices)
            joined = [choice]
        else:
            choice = self.random.choice(self.choices)
            count = self.random.choices((1, 2, 3), (0.5, 0.3, 0.2))[0]
            joined = self._join(choice, self.choices, count)
            self.random.shuffle(joined)
        # Of joined texts, one is asked for; what it means is known for each.
        made = self.sample([{k: v for k, v in one.items() if k != "tool"} for one in joined])
        choice = joined[made["asked"]]
        others = self.random.sample(choice["others"], min(OTHERS, len(choice["others"])))
        right = [self.random.choice(choice["right"])] if choice["right"] else []
        sequences: list[Any] = []
        for name in (*right, *others):
            words = [tuple(word) for word in self.data["about"][name]]
            sequences.append(
                build_sequence(self.special, made["said"], made["in_clause"], words, ())
            )
        return [bool(right), sequences]


def collate(
    samples: list[dict[str, Any]], choices: list[Any], special: SpecialTokens
) -> dict[str, Tensor]:
    """A batch of sequences with their labels, of the words alone with where they begin, and of
    texts with tools."""
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
    pairs = [sequence for _, sequences in choices for sequence in sequences]
    size = max(len(sequence.ids) for sequence in pairs)
    pair_ids = np.zeros((len(pairs), size), np.int64)
    pair_kinds = np.zeros_like(pair_ids)
    group = np.full((len(choices), OTHERS + 1), -1, np.int64)
    served = np.zeros(len(choices), bool)
    at_pair = 0
    for row, (is_served, sequences) in enumerate(choices):
        served[row] = is_served
        for place, sequence in enumerate(sequences):
            pair_ids[at_pair, : len(sequence.ids)] = sequence.ids
            pair_kinds[at_pair, : len(sequence.ids)] = sequence.kinds
            group[row, place] = at_pair
            at_pair += 1
    found = {
        "pair_ids": pair_ids,
        "pair_kinds": pair_kinds,
        "group": group,
        "served": served,
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

    def __init__(
        self, data: dict[str, Any], examples: list[Any], choices: list[Any], seed: int
    ) -> None:
        self.data = data
        self.examples = examples
        self.choices = choices
        self.seed = seed

    def __iter__(self) -> Any:
        worker = torch.utils.data.get_worker_info()
        seed = self.seed * 1000 + (worker.id if worker else 0)
        sampler = Sampler(self.data, self.examples, self.choices, seed)
        while True:
            samples = [sampler.draw() for _ in range(BATCH)]
            choices = [sampler.draw_choice() for _ in range(CHOICES)]
            yield collate(samples, choices, sampler.special)


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
    return total + 2 * loss + compute_choice_loss(model, batch)


def compute_choice_loss(model: ArgumentReader, batch: dict[str, Tensor]) -> Tensor:
    """Of the tool that is meant among others, and of whether each does what is wanted."""
    scores = model.serve(model(batch["pair_ids"], batch["pair_kinds"])).float()
    group = batch["group"]
    table = scores[group.clamp(min=0)].masked_fill(group < 0, -1e4)
    right = torch.zeros_like(table)
    right[:, 0] = batch["served"].float()
    alone = F.binary_cross_entropy_with_logits(table[group >= 0], right[group >= 0])
    served = table[batch["served"]]
    if not len(served):
        return alone
    return alone + F.cross_entropy(served, torch.zeros_like(batch["group"][batch["served"], 0]))


def measure(
    model: ArgumentReader, data: dict[str, Any], examples: list[Any], choices: list[Any]
) -> dict[str, float]:
    """How many values and tools are exactly right, and how many beginnings are found, on these."""
    sampler = Sampler(data, examples, choices, 7)
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
                chosen = [first] if first["task"] else chosen
                samples.append(sampler.sample(chosen))
            batch = {
                name: value.cuda()
                for name, value in collate(
                    samples, [sampler.draw_choice() for _ in range(CHOICES)], sampler.special
                ).items()
            }
            with torch.no_grad():
                scores = model.serve(model(batch["pair_ids"], batch["pair_kinds"]))
                table = scores[batch["group"].clamp(min=0)].masked_fill(batch["group"] < 0, -1e4)
                best = table[batch["served"]].argmax(-1)
                count(f"choices{joined}", len(best))
                count(f"choices right{joined}", int((best == 0).sum()))
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


def is_of_fold(one: dict[str, Any], fold: int) -> bool:
    """Whether an example is a step of a task that is about servers of this half."""
    names = one["servers"] or [one["task"]]
    return bool(one["task"]) and any(zlib.crc32(name.encode()) % 2 == fold for name in names)


def main() -> None:
    """Train, measure, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("prepared", type=Path)
    parser.add_argument("base", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--hold-out", action="store_true")
    parser.add_argument("--start", type=Path, help="weights of an earlier run to go on from")
    parser.add_argument("--fold", type=int, choices=(0, 1))
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=1.5e-4)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--workers", type=int, default=5)
    options = parser.parse_args()
    data = json.loads(options.prepared.read_text())
    torch.manual_seed(1)
    if options.fold is not None:
        for kind in ("examples", "choices"):
            data[kind] = [one for one in data[kind] if not is_of_fold(one, options.fold)]
    servers = sorted({example["tool"].split("/")[0] for example in data["examples"]})
    held = set(random.Random(5).sample(servers, len(servers) // 10)) if options.hold_out else set()
    held_examples = [
        one for one in data["examples"] if one["tool"].split("/")[0] in held and not one["task"]
    ]
    examples = [one for one in data["examples"] if one["tool"].split("/")[0] not in held]
    choices: dict[bool, list[Any]] = {False: [], True: []}
    for one in data["choices"]:
        choices[any(name.split("/")[0] in held for name in one["right"])].append(one)
    with np.load(options.base) as stored:
        encoder = load_encoder({name: stored[name] for name in stored.files})
    encoder.layers = encoder.layers[: options.layers]
    model = ArgumentReader(encoder).cuda()
    if options.start:
        with np.load(options.start) as stored:
            known = {name: torch.tensor(np.float32(stored[name])) for name in stored.files}
        model.load_state_dict(known, strict=False)
    slow = [p for n, p in model.named_parameters() if p.requires_grad and "point" not in n]
    heads = [*model.pointers.parameters()]
    groups = [{"params": slow, "lr": options.rate}, {"params": heads, "lr": 5 * options.rate}]
    optimizer = torch.optim.AdamW(groups, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: schedule(step, options.steps)
    )
    loader = DataLoader(
        Batches(data, examples, choices[False], 1),
        batch_size=None,
        num_workers=options.workers,
        prefetch_factor=8,
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
        print(len(held_examples), measure(model, data, held_examples, choices[True]), flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(options.out / "weights.npz", **get_weights(model))


if __name__ == "__main__":
    main()
