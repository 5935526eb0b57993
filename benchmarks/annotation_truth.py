"""Generator, judge and loop measured on truth: drawn scenes, annotators with known error rates.

    python benchmarks/annotation_truth.py                  # 400 scenes a row, about two minutes

The backend `scenes` writes from the exact scene graph and errs at the rates that it is given, in
known ways; its replies go through the same parser, loop, log and collection as any server's. What
is then stored is compared with the graphs. Tables are Markdown.
"""

import argparse
import tempfile
from pathlib import Path

from paragrain.annotation import AnnotationSettings, BackendSettings, SceneErrors, annotate
from paragrain.annotation.simulator import (
    Share,
    judge_quality,
    judged_candidates,
    measure,
    quality_after,
)
from paragrain.collection import Collection, Record
from paragrain.runtime import tune
from paragrain.sources import import_scenes

THRESHOLDS = (0, 2, 5, 7, 9)
UNTIDY = {"preamble": 0.3, "short_list": 0.1, "repeat": 0.1, "refusal": 0.05, "truncated": 0.05}
PROFILES = {
    "faultless": SceneErrors(),
    "faultless, untidy replies": SceneErrors(unclear=0.1, **UNTIDY),
    "10 % errors, exact judge": SceneErrors(
        false_caption=0.1, true_negative=0.1, false_sentence=0.1
    ),
    "10 % errors, judge 20 % lenient and 10 % harsh": SceneErrors(
        false_caption=0.1, true_negative=0.1, false_sentence=0.1, lenient=0.2, harsh=0.1
    ),
    "30 % errors, judge 20 % lenient and 10 % harsh, untidy": SceneErrors(
        false_caption=0.3,
        true_negative=0.3,
        false_sentence=0.3,
        lenient=0.2,
        harsh=0.1,
        unclear=0.1,
        **UNTIDY,
    ),
}


def annotated(folder: Path, errors: SceneErrors, scenes: int, seed: int) -> list[Record]:
    """The training scenes of a world, annotated with these errors."""
    import_scenes(folder, size=scenes, seed=seed, progress=False)
    model = BackendSettings(backend="scenes", model="scenes", errors=errors)
    settings = AnnotationSettings(generator=model, judge=model, replace=True, seed=seed)
    report = annotate(Collection.open(folder), settings, split="train", progress=False)
    print(f"  {report.calls:,} calls, {len(report.failed):,} of {report.images:,} images failed")
    return list(Collection.open(folder).records("train"))


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines)


def shown(rate: float, share: Share) -> str:
    """The rate that was asked for, and what was found."""
    return f"{100 * rate:.0f}: {share.estimate:.1%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--scenes", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    tune()
    texts, judges, loops = [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        for index, (name, errors) in enumerate(PROFILES.items()):
            print(name)
            records = annotated(Path(scratch) / str(index), errors, args.scenes, args.seed)
            _, _, found = measure(records)
            texts.append(
                [
                    name,
                    shown(errors.false_caption, found["captions that are false"]),
                    shown(errors.true_negative, found["hard negatives that are true"]),
                    shown(errors.false_sentence, found["sentences that are false"]),
                    f"{found['faultless paragraphs'].estimate:.1%}",
                ]
            )
            images = judged_candidates(records)
            pairs = [(a.score, a.faultless) for own in images for a in own]
            quality = judge_quality(pairs)
            cells = [
                " / ".join(f"{share.estimate:.0%}".split()[0] for share in quality[t])
                for t in THRESHOLDS
            ]
            judges.append([name, str(len(pairs)), *cells])
            loops.append([name, *(f"{quality_after(images, k).estimate:.1%}" for k in (1, 2, 3))])
    print(f"\n{args.scenes} scenes a row, seed {args.seed}; shares in % with 95 % intervals\n")
    head = ["asked: found", "false captions", "negatives that are true", "false sentences",
            "faultless paragraphs kept"]  # fmt: skip
    print(table(head, texts))
    print("\nJudge as a finder of paragraphs with a wrong fact, precision / recall in %\n")
    head = ["written again at a score of at most", "judged", *map(str, THRESHOLDS)]
    print(table(head, judges))
    print("\nFaultless paragraphs kept, written again at 5 or less\n")
    print(table(["candidates", "1", "2", "3"], loops))


if __name__ == "__main__":
    main()
