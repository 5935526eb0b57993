"""README.md of a checkpoint: a model card, with the lines that give its vectors without paragrain.

A test runs those lines out of the card of each family.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from paragrain.encoders.checkpoint import is_own

if TYPE_CHECKING:
    from paragrain.encoders.base import ImageTextEncoder

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


@dataclass(frozen=True)
class Story:
    """How the weights of a checkpoint came to be.

    Attributes:
        start: name of the model that training began from.
        sections: further sections, heading and Markdown text.
        licence: what is known of it, in Markdown.
        licence_id: its identifier on the Hub, where it has one.
    """

    start: str | None = None
    sections: Mapping[str, str] = field(default_factory=dict)
    licence: str = "Not stated. It follows from the model that this one was made from."
    licence_id: str | None = None


def write_card(folder: Path, encoder: "ImageTextEncoder", story: Story) -> None:
    """Write the README.md of a checkpoint that lies in `folder`."""
    parts = [
        f"---\n{yaml.safe_dump(_front_matter(encoder, story), sort_keys=False)}---\n",
        "# Image search by text, paragraphs included\n",
        f"Texts and images become vectors of {encoder.dim} numbers, of unit length; their dot "
        "product says how well they fit. Made with paragrain.\n",
        *(f"## {heading}\n\n{text}\n" for heading, text in story.sections.items()),
        f"## Vectors\n\n{_usage(encoder)}\n",
        f"## Length of a text\n\n{_length(encoder)}\n",
        f"## Licence\n\n{story.licence}\n",
        f"## Limits\n\n{_LIMITS}\n",
    ]
    (folder / "README.md").write_text("\n".join(parts), "utf-8")


def _front_matter(encoder: "ImageTextEncoder", story: Story) -> dict[str, Any]:
    """What the Hub reads."""
    kind = _kind(encoder)
    plain = "transformers" if _plain_family(encoder) else "paragrain"
    matter: dict[str, Any] = {
        "library_name": "sentence-transformers" if kind == "pair" else plain,
        "pipeline_tag": "feature-extraction",
        "tags": ["paragrain", "image-text-retrieval", *([kind] if kind else [])],
        "license": story.licence_id or "other",
    }
    if story.licence_id is None:
        matter["license_name"] = "see-below"
    if story.start and _HUB_NAME.fullmatch(story.start):
        matter["base_model"] = story.start
    return matter


def _kind(encoder: "ImageTextEncoder") -> str:
    """Such as blip, clip or pair; "" for an encoder of another package."""
    return type(encoder).__name__.removesuffix("Encoder").lower() if is_own(encoder) else ""


def _plain_family(encoder: Any) -> Any:
    """The family of an encoder whose vectors plain `transformers` gives; `None` for others."""
    family = getattr(encoder, "family", None) if is_own(encoder) else None
    return family if family and family.text_usage else None


def _length(encoder: "ImageTextEncoder") -> str:
    most = f" It can read {encoder.max_tokens}." if encoder.max_tokens > encoder.max_length else ""
    return (
        f"The first {encoder.max_length} tokens of a text are read, special ones included, unless "
        f"another number is asked for.{most} What is beyond is truncated; the end token stays. The "
        "tokenizer's `model_max_length` says the same. Names of special tokens within a text "
        "are read as text."
    )


_LIMITS = (
    "Trained and measured on what is named above and on nothing else: on other images and other "
    "kinds of text it may do better or worse. Like its start it may repeat the prejudices of its "
    "data. It finds and ranks images; it does not check facts."
)


def _usage(encoder: "ImageTextEncoder") -> str:
    """The lines that give the vectors, with what to know about them."""
    kind, family = _kind(encoder), _plain_family(encoder)
    if kind == "pair":
        images = "The image embeddings were stored: no model here makes them."
        if encoder.reads_images:
            images = 'Images: `paragrain.load_encoder(".")`; `vision/` holds their model.'
        return f"{_PAIR}\n\n```python\n{_pair_lines(encoder)}```\n\n{images}"
    if family is None:
        why = "which these lines open" if kind else _CUSTOM
        return f"This is a {type(encoder).__name__}, {why}:\n\n```python\n{_OWN}```"
    model = family.model.__name__
    text = _TEXTS.format(model=model, padding=family.padding, vectors=family.text_usage)
    image = _IMAGES.format(model=model, vectors=family.image_usage)
    return (
        f"{family.usage_note}Of texts:\n\n```python\n{text}```\n\n"
        f"Of images:\n\n```python\n{image}```"
    )


_OWN = """import paragrain as pg

encoder = pg.load_encoder(".")  # this folder
text_vectors = pg.encode_texts(encoder, ["a red bus at a stop"]).vectors
"""

_CUSTOM = (
    "an encoder that another package brings. Plain `transformers` opens the weights and gives "
    "other vectors; with that package installed, these lines give them"
)

_PAIR = (
    "`SentenceTransformer(FOLDER)` of sentence-transformers opens this folder and gives the text "
    "vectors. So do these lines of plain `transformers`:"
)

_TEXTS = """import torch
from transformers import AutoTokenizer, {model}

folder = "."  # where this file is
texts = ["a red bus at a stop", "two dogs on a wet beach, one with a stick in its mouth"]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = {model}.from_pretrained(folder, dtype=torch.float32).eval()
words = tokenizer(texts, truncation=True, padding={padding}, return_tensors="pt")
with torch.inference_mode():
    {vectors}
text_vectors = torch.nn.functional.normalize(vectors, dim=-1)
"""

_IMAGES = """import torch
from PIL import Image
from transformers import AutoImageProcessor, {model}

folder = "."  # where this file is
images = [Image.open("photo.jpg").convert("RGB")]
processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
model = {model}.from_pretrained(folder, dtype=torch.float32).eval()
pixels = processor(images, return_tensors="pt")["pixel_values"]
with torch.inference_mode():
    {vectors}
image_vectors = torch.nn.functional.normalize(vectors, dim=-1)
"""


_POOLED = {
    "mean": "(states * mask).sum(1) / mask.sum(1)",
    "cls": "states[:, 0]",
    "max": "states.masked_fill(mask == 0, -torch.inf).max(1).values",
}

_PAIR_LINES = """import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

folder = "./text"  # beside this file
texts = ["a red bus at a stop", "two dogs on a wet beach, one with a stick in its mouth"]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
words = tokenizer(texts, truncation=True, padding=True, return_tensors="pt")
mask = words.attention_mask[..., None]
with torch.inference_mode():
    states = model(words.input_ids, words.attention_mask).last_hidden_state
vectors = {pooled}
"""

_DENSE = """layer = load_file(f"{{folder}}/{number}_Dense/model.safetensors")
vectors = {activation}(torch.nn.functional.linear(vectors, layer["linear.weight"]{bias}))
"""


def _pair_lines(encoder: Any) -> str:
    """The lines of a pair: its hidden states pooled, and each dense layer behind."""
    text = encoder.model.text
    lines = _PAIR_LINES.format(pooled=_POOLED[text.pooling])
    for number, layer in enumerate([*text.layers, None], 2):
        activation, bias = "", ""
        if layer is not None:
            activation = "torch.nn.{}()".format(layer.activation_name.rpartition(".")[2])
            bias = ', layer["linear.bias"]' if layer.linear.bias is not None else ""
        lines += _DENSE.format(number=number, activation=activation, bias=bias)
    return lines + "text_vectors = torch.nn.functional.normalize(vectors, dim=-1)\n"
