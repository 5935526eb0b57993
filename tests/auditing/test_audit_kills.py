"""An audit killed at random moments, then run again, says what an undisturbed one says."""

import io
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE

import numpy as np
import pytest

from paragrain.auditing import image_fingerprints as module
from paragrain.collection import Collection, ImageRef, Record
from paragrain.images import decode
from paragrain.sources.scenes.render import png
from paragrain.sources.scenes.world import scenes_of

KILLS = 8
BATCH = 4
IMAGES = 32

AUDIT = """
import json, os, signal, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from paragrain.auditing import audit, image_fingerprints
from paragrain.collection import Collection
from paragrain.encoders import load_encoder

image_fingerprints.BATCH = int(sys.argv[1])
audit(Collection.open(Path(sys.argv[3])), progress=False)
encoder = load_encoder(sys.argv[2], "cpu")
for line in sys.stdin:
    folders, out, seconds = json.loads(line)
    child = os.fork()
    if not child:
        sides = [Collection.open(folder) for folder in folders]
        audit(*sides, encoder=encoder, cosine=0.999, progress=False).write(Path(out))
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

Run = Callable[..., int]
Collect = Callable[[Path, list[Record]], Collection]


def drawn(count: int) -> list[bytes]:
    return [png(scene) for _, scene in scenes_of("train", count, 5, family=1)]


@pytest.fixture
def run(random_blip: Path, collect: Collect, tmp_path: Path) -> Iterator[Run]:
    """`run(folders, out, seconds)`: audit in a child, kill it after so many seconds, and wait."""
    made = drawn(1)[0]
    brighter = io.BytesIO()  # what has to be laid over each other needs code of its own
    decode(made).point([min(255, round(1.2 * value)) for value in range(256)] * 3).save(
        brighter, "PNG"
    )
    records = [
        Record("1", ImageRef(made), captions=["one"]),
        Record("2", ImageRef(brighter.getvalue())),
    ]
    warm = collect(tmp_path / "warm", records)
    command = [sys.executable, "-c", AUDIT, str(BATCH), str(random_blip), str(warm.folder)]
    process = subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True)

    def one(folders: list[Path], out: Path, seconds: float | None = None) -> int:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps([[str(f) for f in folders], str(out), seconds]) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    yield one
    process.kill()
    process.communicate()


def read(out: Path) -> dict[str, bytes]:
    """What lies in a folder of results under its own name; anything there must be whole."""
    found = {path.name: path.read_bytes() for path in out.glob("[!.]*")}
    if "audit.json" in found:
        json.loads(found["audit.json"])
    if "findings.csv" in found:
        assert found["findings.csv"].endswith(b"\n")
    if "audit.html" in found:
        assert found["audit.html"].rstrip().endswith(b"</html>")
    return found


def test_kills_at_random_moments(
    collect: Collect,
    worsened: Callable[[bytes, random.Random], bytes],
    run: Run,
    tmp_path: Path,
) -> None:
    rng = random.Random(3)
    made = drawn(IMAGES)
    own = [Record(f"t{n}", ImageRef(d), captions=[f"no. {n}"]) for n, d in enumerate(made[:20])]
    own.append(Record("broken", ImageRef(made[0][:-9])))
    other = [Record(f"e{n}", ImageRef(d)) for n, d in enumerate(made[20:])]
    other += [Record(f"c{n}", ImageRef(worsened(made[n], rng))) for n in range(8)]
    other.append(Record("text", ImageRef(made[-1]), captions=["No 7!"]))
    folders = [tmp_path / "train", tmp_path / "eval"]
    for folder, records in zip(folders, (own, other), strict=True):
        collect(folder, records)
    copies = [Path(shutil.copytree(f, tmp_path / "undisturbed" / f.name)) for f in folders]
    assert run([tmp_path / "warm"], tmp_path / "ready") == 0
    started = time.monotonic()
    assert run(copies, tmp_path / "wanted") == 0
    whole = time.monotonic() - started
    wanted = read(tmp_path / "wanted")
    reasons = {f["reason"] for f in json.loads(wanted["audit.json"])["findings"]}
    assert {"near", "text"} <= reasons

    killed, kept = 0, []
    for number in range(KILLS):
        # What is kept makes each run shorter: half of the kills come early, half anywhere.
        seconds = rng.uniform(0.02, whole * (0.4 if number % 2 else 1.0))
        killed += run(folders, tmp_path / "out", seconds) == -9
        parts = list((folders[0] / "audit" / module.VERSION).glob("*.npy"))
        kept.append(len(parts))
        for part in parts:  # whole at any moment
            assert len(np.load(part))
        read(tmp_path / "out")
    assert killed >= KILLS // 3
    assert kept == sorted(kept)  # nothing that is done is done again
    assert run(folders, tmp_path / "out") == 0
    assert read(tmp_path / "out") == wanted
    collections = [Collection.open(folder) for folder in folders]
    again = [module.image_fingerprints(one, progress=False) for one in collections]
    assert [one.computed for one in again] == [0, 0]
    for one in again:  # each image once, in spite of all kills
        assert len(np.unique(one._store.table["content"])) == len(one._store.table)
