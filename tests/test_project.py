"""What the project promises of itself: its environment, its import order, its size."""

import pkgutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


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


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_no_file_says_more_than_one_thing(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 420
