"""The argument reader as PyTorch trains it: the encoder's layers, kinds of tokens, and pointers.

The table of word pieces stays as the encoder has it, so that only one ships.
"""

# pyright: reportMissingImports=false, reportUntypedBaseClass=false
# pyright: reportUnknownParameterType=false
# PyTorch is not installed where types are checked.

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training.model import Encoder, Linear

POINTER_WIDTH = 128
KINDS = 3


class ArgumentReader(nn.Module):
    """Token numbers and kinds in; pointers from parameters, where clauses begin, and whether a tool
    serves, out."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        width = encoder.places.shape[1]
        self.tokens = encoder.tokens
        self.tokens.weight.requires_grad_(False)
        self.places = encoder.places
        self.norm = encoder.norm
        self.layers = encoder.layers
        self.kinds = nn.Parameter(torch.zeros(KINDS, width))
        self.pointers = nn.Linear(width, 4 * POINTER_WIDTH)
        self.begins = nn.Linear(width, 1)
        self.serves = nn.Linear(width, 1)
        self.dropout = nn.Dropout(0.1)

    def forward(self, ids: Tensor, kinds: Tensor) -> Tensor:
        """The state of each token; token 0 is padding."""
        seen = ids > 0
        stream = self.tokens(ids) + self.places[: ids.shape[1]] + self.kinds[kinds]
        stream = self.dropout(self.norm(stream))
        for layer in self.layers:
            stream = self.dropout(layer(stream, seen))
        return stream

    def point(self, stream: Tensor, marks: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of each token as the first and as the last of each marked parameter's value."""
        parts = self.pointers(stream).unflatten(-1, (4, POINTER_WIDTH))
        at = marks[..., None].expand(-1, -1, POINTER_WIDTH)
        scores: list[Tensor] = []
        for asked, offered in ((0, 1), (2, 3)):
            questions = torch.gather(parts[:, :, asked], 1, at)
            scores.append(questions @ parts[:, :, offered].transpose(1, 2) * POINTER_WIDTH**-0.5)
        return scores[0], scores[1]

    def serve(self, stream: Tensor) -> Tensor:
        """How surely the tool of each sequence does what its clause wants, as a logit."""
        return self.serves(stream[:, 0])[..., 0]

    def set_rounding(self, on: bool) -> None:
        """Compute with the rounding of the shipped graph, or without."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.rounded = on


def load_encoder(weights: Mapping[str, np.ndarray[Any, Any]]) -> Encoder:
    """The shipped encoder, from what `training.arguments.base` read."""
    model = Encoder(len(weights["tokens"]), places=len(weights["places"]))
    state = {
        ("tokens.weight" if name == "tokens" else name): torch.tensor(
            np.asarray(value, dtype=np.float32)
        )
        for name, value in weights.items()
    }
    model.load_state_dict(state)
    return model


def get_weights(model: ArgumentReader) -> dict[str, Any]:
    """What `training.arguments.export` reads: everything but the table of word pieces."""
    return {
        name: value.detach().cpu().numpy().astype(np.float16)
        for name, value in model.state_dict().items()
        if name != "tokens.weight"
    }
