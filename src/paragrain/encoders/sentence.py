"""The text tower of a pair: any Hugging Face text encoder, pooled to one vector a text.

It reads and writes folders of sentence-transformers: a model, a pooling, dense layers.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoTokenizer

from paragrain.encoders import tokenization
from paragrain.encoders.checkpoint import write_model, write_tokenizer
from paragrain.encoders.tokens import MIN_LENGTH
from paragrain.encoders.weights import (
    effective_tensors,
    load_bare,
    load_part,
    one_sentence,
    plain_settings,
    read_weights,
)
from paragrain.errors import ParagrainError
from paragrain.files import read_json, write_json

SENTENCES = "config_sentence_transformers.json"

POOLINGS = ("mean", "cls", "max")
"""How the hidden states of a text become one vector."""

_OLD_POOLINGS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}
_ACTIVATIONS: dict[str, type[nn.Module]] = {
    "torch.nn.modules.linear.Identity": nn.Identity,
    "torch.nn.modules.activation.Tanh": nn.Tanh,
    "torch.nn.modules.activation.ReLU": nn.ReLU,
    "torch.nn.modules.activation.GELU": nn.GELU,
    "torch.nn.modules.activation.SiLU": nn.SiLU,
}
_MOST_TOKENS = 100_000
"""Tokenizers that know no limit say something above this."""


class Dense(nn.Module):
    """A linear layer and an activation, as sentence-transformers has them behind a pooling."""

    def __init__(self, linear: nn.Linear, activation: str = "torch.nn.modules.linear.Identity"):
        super().__init__()
        self.linear = linear
        self.activation = _ACTIVATIONS[activation]()
        self.activation_name = activation

    @classmethod
    def from_folder(cls, folder: Path, name: str) -> "Dense":
        """Load one such module.

        Raises:
            ParagrainError: it does something that is not supported, or is damaged.
        """
        config = _settings(folder / "config.json", name)
        activation = config.get("activation_function", "torch.nn.modules.activation.Tanh")
        reads = config.get("module_input_name") or "sentence_embedding"
        writes = config.get("module_output_name") or reads
        plain = reads == writes == "sentence_embedding" and not config.get("use_residual")
        if activation not in _ACTIVATIONS or not plain:
            raise ParagrainError(
                f"the layer {folder.name} of {name} is of a kind that is not supported: use a text "
                "encoder whose dense layers are plain ones with a usual activation"
            )
        state = read_weights(folder, f"{name}/{folder.name}")
        with one_sentence(
            f"the layer {folder.name} of {name} does not hold the weights of a dense layer"
        ):
            weight, bias = state.pop("linear.weight"), state.pop("linear.bias", None)
            linear = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
            linear.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
        return cls(linear, activation)

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """`[B, in]` to `[B, out]`."""
        return self.activation(self.linear(vectors))

    def save(self, folder: Path) -> None:
        """Write it as sentence-transformers does."""
        folder.mkdir()
        config = {
            "in_features": self.linear.in_features,
            "out_features": self.linear.out_features,
            "bias": self.linear.bias is not None,
            "activation_function": self.activation_name,
        }
        write_json(folder / "config.json", config)
        state = {f"linear.{key}": value for key, value in effective_tensors(self.linear).items()}
        save_file(
            {key: value.detach().cpu().contiguous() for key, value in state.items()},
            folder / "model.safetensors",
            {"format": "pt"},
        )


class SentenceEncoder(nn.Module):
    """A text encoder and what makes one vector of its hidden states.

    Args:
        model: in float32, as `weights.load_bare` gives it.
        tokenizer: its fast tokenizer.
        pooling: one of `POOLINGS`.
        dense: layers behind the pooling.
        name: what the user calls it.
        lower_case: whether texts are lower-cased first, whatever the tokenizer does.
        limit: `max_tokens`, where it is known.

    Attributes:
        max_tokens: what the model has positions for.
        default_max_length: a folder's `max_seq_length`, such as 256 of the 512 of all-MiniLM-L6-v2;
            128 where it names none.
        width: of the vectors.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        pooling: str,
        dense: Sequence[Dense],
        name: str,
        lower_case: bool = False,
        limit: int | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self.lower_case = lower_case
        if lower_case:
            tokenization.lower_case(tokenizer)
        self.pooling = pooling
        self.dense = nn.ModuleList(dense)
        self.max_tokens = limit or _positions(model, tokenizer)
        self.default_max_length = 128
        self.tokenizer = tokenizer
        self.width = self._probe(name)

    @classmethod
    def from_folder(cls, folder: Path, name: str, limit: int | None = None) -> "SentenceEncoder":
        """Load a folder of sentence-transformers, or any other text encoder with mean pooling.

        Prompts that a folder names are not put before texts.

        Raises:
            ParagrainError: it holds modules or a pooling that are not supported.
        """
        path = folder / "modules.json"
        modules = _modules(path, name) if path.is_file() else [("Transformer", folder)]
        (_, inner), *others = modules
        pooling = _pooling(others[0][1] / "config.json", name) if others else "mean"
        dense = [Dense.from_folder(place, name) for kind, place in others if kind == "Dense"]
        tokenizer = load_part(
            AutoTokenizer, inner, name, "tokenizer",
            ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model"),
        )  # fmt: skip
        path = inner / "sentence_bert_config.json"
        settings = _settings(path, name) if path.is_file() else {}
        lower = bool(settings.get("do_lower_case"))
        encoder = cls(load_bare(inner, name), tokenizer, pooling, dense, name, lower, limit)
        stated = settings.get("max_seq_length")
        if isinstance(stated, int) and stated >= MIN_LENGTH:
            encoder.default_max_length = stated
        return encoder

    def _probe(self, name: str) -> int:
        """Try a text: find the width, refuse what is no text encoder."""
        with one_sentence(
            f"{name} cannot be used as a text encoder",
            "use an encoder such as BERT, with a fast tokenizer",
        ):
            ids = self.tokenizer.backend_tokenizer.encode("").ids
            words, entries = len(self.tokenizer), self.model.get_input_embeddings().num_embeddings
            with torch.inference_mode():
                row = torch.tensor([ids or [0]])
                width = self.eval()(row, torch.ones_like(row)).shape[1]
        if not ids or ids[-1] not in self.tokenizer.all_special_ids:
            raise ParagrainError(
                f"the tokenizer of {name} does not close a text with an end token, which a "
                "truncated text keeps: use a text encoder such as BERT"
            )
        if words > entries:
            raise ParagrainError(
                f"the tokenizer of {name} has {words:,} entries but its text model only "
                f"{entries:,}: use the tokenizer that came with the checkpoint"
            )
        return width

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Float32 `[B, width]` of padded texts `[B, L]`, not normalised."""
        hidden = self.states(input_ids, attention_mask).float()
        mask = attention_mask[:, :, None]
        if self.pooling == "cls":
            pooled = hidden[:, 0]
        elif self.pooling == "max":
            pooled = hidden.masked_fill(mask == 0, -torch.inf).max(dim=1).values
        else:
            pooled = (hidden * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)
        for layer in self.layers:
            pooled = layer(pooled)
        return pooled

    def states(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Last hidden states `[B, L, H]` of padded texts."""
        hidden: torch.Tensor = self.model(
            input_ids=input_ids, attention_mask=attention_mask
        ).last_hidden_state
        return hidden

    @property
    def layers(self) -> list[Dense]:
        """The dense layers behind the pooling."""
        return [layer for layer in self.dense if isinstance(layer, Dense)]

    def settings(self) -> dict[str, Any]:
        """What besides weights and tokenizer decides a vector."""
        return {
            "model": plain_settings(self.model.config),
            "pooling": self.pooling,
            "dense": [layer.activation_name for layer in self.layers],
        }

    def save(self, folder: Path, projection: nn.Linear, max_length: int) -> None:
        """Write a complete folder of sentence-transformers that ends in `projection`.

        It reads as many tokens of a text as `max_length` says.
        """
        write_model(folder, self.model)
        # Out of a BLIP or CLIP it may name a processor, of which sentence-transformers makes much.
        write_tokenizer(folder, self.tokenizer, max_length, processor_class=None)
        settings = {"max_seq_length": max_length, "do_lower_case": self.lower_case}
        write_json(folder / "sentence_bert_config.json", settings)
        write_json(folder / SENTENCES, {"__version__": {}, "similarity_fn_name": "cosine"})
        paths = [("Transformer", ""), ("Pooling", "1_Pooling")]
        (folder / "1_Pooling").mkdir()
        old = {key: mode == self.pooling for key, mode in _OLD_POOLINGS.items()}
        dense = [*self.layers, Dense(projection)]
        pooling = {"word_embedding_dimension": dense[0].linear.in_features, **old}
        write_json(folder / "1_Pooling" / "config.json", pooling)
        for number, layer in enumerate(dense, 2):
            layer.save(folder / f"{number}_Dense")
            paths.append(("Dense", f"{number}_Dense"))
        paths.append(("Normalize", f"{len(paths)}_Normalize"))
        modules = [
            {"idx": number, "name": str(number), "path": path,
             "type": f"sentence_transformers.models.{kind}"}
            for number, (kind, path) in enumerate(paths)
        ]  # fmt: skip
        write_json(folder / "modules.json", modules)


def _modules(path: Path, name: str) -> list[tuple[str, Path]]:
    """Kind and folder of each module of a modules.json, in order."""
    with one_sentence(f"the modules.json of {name} is damaged"):
        listed = [
            (str(item["type"]).rpartition(".")[2], _within(path.parent, item["path"]))
            for item in json.loads(path.read_bytes())
        ]
    kinds = [kind for kind, _ in listed]
    layers = kinds[2:-1] if kinds[-1:] == ["Normalize"] else kinds[2:]
    if kinds[:2] != ["Transformer", "Pooling"] or set(layers) - {"Dense"}:
        raise ParagrainError(
            f"{name} consists of {', '.join(kinds) or 'nothing'}: use a text encoder made of "
            "Transformer, Pooling and, behind them, Dense and Normalize"
        )
    return listed


def _within(folder: Path, path: str) -> Path:
    """A path that a checkpoint names, which must not lead out of its folder."""
    if Path(path).is_absolute() or ".." in Path(path).parts:
        raise ValueError(f"the path {path} leads out of the folder")
    return folder / path


def _pooling(path: Path, name: str) -> str:
    """The one way in which a Pooling module pools."""
    config = _settings(path, name)
    modes = config.get("pooling_mode")
    if modes is None:
        on = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
        modes = [_OLD_POOLINGS.get(key, key.removeprefix("pooling_mode_")) for key in on]
    modes = [modes] if isinstance(modes, str) else list(modes)
    if len(modes) != 1 or modes[0] not in POOLINGS:
        raise ParagrainError(
            f"{name} pools its tokens by {' and '.join(modes) or 'nothing'}: "
            f"use a text encoder that pools by one of {', '.join(POOLINGS)}"
        )
    return modes[0]


def _settings(path: Path, name: str) -> dict[str, Any]:
    with one_sentence(f"{path.parent.name}/{path.name} of {name} cannot be read"):
        return dict(read_json(path))


def _positions(model: Any, tokenizer: Any) -> int:
    """The most tokens that the text model can read."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            # RoBERTa and its like count positions from behind that of the fill.
            fill = module.padding_idx
            return module.num_embeddings - (0 if fill is None else fill + 1)
    limits = (getattr(model.config, "max_position_embeddings", 0), tokenizer.model_max_length)
    return next((int(limit) for limit in limits if 0 < limit <= _MOST_TOKENS), 512)
