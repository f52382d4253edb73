"""The encoder as PyTorch trains it: a six-layer transformer that already feels the rounding it will
ship with.

Every matrix product sees its weights in 7 bits per output channel and its activations in 8 bits per
text, exactly as the exported graph computes them (`training.export`); gradients pass straight
through the rounding.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# pyright: reportUntypedFunctionDecorator=false
# pyright: reportUnknownParameterType=false
# PyTorch is not installed where types are checked.

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

HEADS = 12
WEIGHT_LEVELS = 63
ACTIVATION_LEVELS = 255


class Linear(nn.Linear):
    """A linear layer that can be asked to round like the shipped one."""

    rounded = False

    def forward(self, input: Tensor) -> Tensor:
        """The product, rounded if so set."""
        if not self.rounded:
            return super().forward(input)
        return F.linear(_round_activation(input), _round_weight(self.weight), self.bias)


def _round_weight(weight: Tensor) -> Tensor:
    with torch.no_grad():
        scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-8) / WEIGHT_LEVELS
        rounded = (weight / scale).round() * scale
    return weight + (rounded - weight).detach()


def _round_activation(value: Tensor) -> Tensor:
    with torch.no_grad():
        exact = value.float()
        low = exact.amin((1, 2), keepdim=True).clamp(max=0)
        high = exact.amax((1, 2), keepdim=True).clamp(min=0)
        scale = (high - low).clamp(min=1e-8) / ACTIVATION_LEVELS
        zero = (-low / scale).round()
        rounded = (((exact / scale).round() + zero).clamp(0, ACTIVATION_LEVELS) - zero) * scale
        change = rounded.to(value.dtype) - value
    return value + change


class Layer(nn.Module):
    """One transformer layer, normalised after each half."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (Linear(width, width) for _ in range(4))
        self.up, self.down = Linear(width, inner), Linear(inner, width)
        self.norm1, self.norm2 = (nn.LayerNorm(width, eps=1e-12) for _ in range(2))

    def forward(self, stream: Tensor, seen: Tensor) -> Tensor:
        """The stream after this layer; `seen` is true where there is a token."""
        texts, tokens, width = stream.shape
        q, k, v = (
            part(stream).view(texts, tokens, HEADS, -1).transpose(1, 2)
            for part in (self.q, self.k, self.v)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None, :])
        stream = self.norm1(self.o(mixed.transpose(1, 2).reshape(texts, tokens, width)) + stream)
        return self.norm2(self.down(F.gelu(self.up(stream))) + stream)


class Encoder(nn.Module):
    """Token numbers in, unit vectors out."""

    def __init__(
        self,
        vocabulary: int,
        places: int = 512,
        width: int = 384,
        inner: int = 1536,
        layers: int = 6,
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Parameter(torch.zeros(places, width))
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Layer(width, inner) for _ in range(layers))

    def forward(self, ids: Tensor, lengths: Tensor) -> Tensor:
        """One unit vector per text: the mean over its tokens."""
        seen = torch.arange(ids.shape[1], device=ids.device)[None] < lengths[:, None]
        stream = self.norm(self.tokens(ids) + self.places[: ids.shape[1]])
        for layer in self.layers:
            stream = layer(stream, seen)
        kept = seen[..., None].to(stream.dtype)
        return F.normalize((stream * kept).sum(1).float() / kept.sum(1).float(), dim=-1)

    def set_rounding(self, on: bool) -> None:
        """Compute with the rounding of the shipped graph, or without."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.rounded = on


def load(weights: Mapping[str, NDArray[np.floating]], parts: list[list[int]]) -> Encoder:
    """The model from stored weights, its vocabulary grown: a new piece starts as the mean of its
    `parts`."""
    tokens = torch.tensor(np.asarray(weights["tokens"], dtype=np.float32))
    torch.manual_seed(0)
    middle, spread = tokens.mean(0), tokens.std(0)
    grown = torch.stack(
        [
            tokens[part].mean(0) if part else middle + 0.3 * spread * torch.randn_like(middle)
            for part in parts
        ]
        or [tokens[0]]
    )
    grown = grown if parts else grown[:0]
    model = Encoder(len(tokens) + len(parts), places=len(weights["places"]))
    state = {
        _ours(name): torch.tensor(np.asarray(value, dtype=np.float32))
        for name, value in weights.items()
    }
    state["tokens.weight"] = torch.cat([tokens, grown])
    model.load_state_dict(state)
    return model


def _ours(name: str) -> str:
    return "tokens.weight" if name == "tokens" else name


def weights_of(model: Encoder) -> dict[str, Any]:
    """Return what `load` and `training.export` read."""
    state = model.state_dict()
    return {
        ("tokens" if name == "tokens.weight" else name): value.detach()
        .cpu()
        .numpy()
        .astype(np.float16)
        for name, value in state.items()
    }


def blend(
    before: Mapping[str, Tensor], after: Mapping[str, Tensor], share: float
) -> dict[str, Tensor]:
    """The weights between two states: `share` of the later one."""
    return {name: torch.lerp(before[name], after[name], share) for name in after}


def schedule(step: int, steps: int) -> float:
    """The learning rate's share at a step: a tenth to warm up, then straight down."""
    return min(1.0, (step + 1) / math.ceil(0.1 * steps)) * max(0.02, 1 - step / steps)
