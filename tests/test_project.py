"""What the project promises of itself: its environment, its import order, its size."""

import pkgutil
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_torchvision_is_nowhere_in_the_environment() -> None:
    names = {(d.metadata["Name"] or "").lower() for d in distributions()}
    assert not names & {"torchvision", "timm", "open-clip-torch"}


def test_importing_the_package_and_asking_for_help_load_no_torch() -> None:
    code = (
        "import sys, paragrain, paragrain.cli.app; "
        "slow = {'torch', 'transformers', 'numba', 'matplotlib'} & set(sys.modules); "
        "sys.exit(', '.join(slow) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_public_name_is_that_of_a_room() -> None:
    """Importing a room puts it into the package under its name, over what was meant there."""
    import paragrain

    rooms = {module.name for module in pkgutil.iter_modules(paragrain.__path__)}
    assert not rooms & set(paragrain.__all__)


PUBLIC = """
AnnotationSettings AuditReport BackendSettings Collection Comparison Embeddings Hit ImageRef
ImageTextEncoder ImportReport ParagrainError Recipe Record Result Run SearchResult Searcher
TrainConfig UsageError annotate audit compare embed encode_texts evaluate exact_ranks import_cc3m
import_coco import_docci import_flickr import_folder import_jsonl import_karpathy import_parquet
import_scenes import_sharegpt4v import_urban1k import_webdataset load_encoder load_recipe
load_result load_study register_encoder retrieval_scores run_study search sweep train update use
write_report
"""


def test_the_public_names_are_these_and_every_importer_is_one() -> None:
    import paragrain
    from paragrain import sources

    assert sorted(paragrain.__all__) == sorted(PUBLIC.split())
    assert sorted(paragrain._HOMES) == sorted(paragrain.__all__)
    assert {name for name in sources.__all__ if name.startswith("import_")} <= {*paragrain.__all__}
    assert set(paragrain.__all__) <= set(dir(paragrain))


def test_every_public_name_can_be_had() -> None:
    import paragrain

    for name in paragrain.__all__:
        assert getattr(paragrain, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        paragrain.nothing  # noqa: B018


def test_imports_run_one_way() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports")],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


SIGINT_IS_HEARD = """
import signal, subprocess, sys
def test_a_process_of_a_test_hears_ctrl_c():
    code = "import signal, sys; sys.exit(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
"""


def test_the_tests_pass_behind_nohup_and_without_a_terminal(tmp_path: Path) -> None:
    """`nohup make test &` has all ignore Ctrl-C, by which some tests stop what they start."""
    folder = tmp_path / "with a space"
    folder.mkdir()
    (folder / "conftest.py").write_text((ROOT / "tests" / "conftest.py").read_text("utf-8"))
    (folder / "test_it.py").write_text(SIGINT_IS_HEARD)
    done = subprocess.run(
        ["sh", "-c", f"{sys.executable} -m pytest -q -p no:cacheprovider . > out 2>&1 < /dev/null &"
         " wait $!"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (folder / "out").read_text("utf-8")


def test_the_wheel_holds_every_file_that_is_no_code() -> None:
    """Recipes, protocols, models with their cards: whatever lies in the package."""
    package = ROOT / "src" / "paragrain"
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    packed = {
        path for pattern in patterns["package-data"]["paragrain"] for path in package.glob(pattern)
    }
    there = {
        path
        for path in package.rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    }
    assert there - packed == set()
    assert {path.suffix for path in there} >= {".yaml", ".safetensors", ".md"}
