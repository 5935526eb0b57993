"""Plugins of other packages: found without an import, broken ones in nobody's way."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paragrain.errors import ParagrainError, UsageError
from paragrain.plugins import register, registered

GROUP = "paragrain.tests"
Install = Callable[[str, str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Install a package of one module beside the others, as pip would leave it."""

    def apply(name: str, entry_points: str, code: str) -> None:
        place = tmp_path / name
        info = place / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(entry_points)
        (place / f"{name}.py").write_text(code)
        monkeypatch.syspath_prepend(place)

    return apply


def test_a_plugin_is_found_without_an_import(install: Install) -> None:
    install("sheet_cabinet", f"[{GROUP}]\nsheets = sheet_cabinet:Sheets\n", "class Sheets: pass\n")
    plugin = registered(GROUP)["sheets"]
    assert plugin.origin == "sheet_cabinet:Sheets of sheet_cabinet 1.0"
    assert "sheet_cabinet" not in sys.modules
    assert plugin.load().__name__ == "Sheets"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import nowhere_at_all", "No module named 'nowhere_at_all'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("1 / 0", "division by zero"),
        ("", "has no attribute 'Thing'"),
        ("def (", "SyntaxError"),
    ],
)
def test_a_broken_plugin_is_named_when_asked_for(install: Install, code: str, reason: str) -> None:
    name = f"broken{abs(hash(code))}"
    install(name, f"[{GROUP}]\nthing = {name}:Thing\n", code)
    plugin = registered(GROUP)["thing"]
    with pytest.raises(ParagrainError, match="the plugin thing") as error:
        plugin.load()
    assert reason in str(error.value)
    assert f"of {name} 1.0" in str(error.value)
    assert "\n" not in str(error.value)


def test_metadata_that_cannot_be_read_hides_no_other_plugin(install: Install) -> None:
    install("garbled", f"[{GROUP}]\nno equals sign\n", "")
    install("sound", f"[{GROUP}]\nsound = sound:value\n", "value = 5\n")
    assert registered(GROUP)["sound"].load() == 5


def test_a_name_of_two_packages_is_nobodys(install: Install) -> None:
    install("first", f"[{GROUP}]\nshared = first:value\n", "value = 1\n")
    install("second", f"[{GROUP}]\nshared = second:value\n", "value = 2\n")
    with pytest.raises(ParagrainError, match=r"two packages .* shared .*first 1\.0.*: uninstall"):
        registered(GROUP)["shared"].load()


def test_what_is_registered_by_hand() -> None:
    class Here:
        pass

    register(GROUP, "here", Here)
    register(GROUP, "here", Here)
    assert registered(GROUP)["here"].load() is Here
    with pytest.raises(UsageError, match=r"is .*Here already"):
        register(GROUP, "here", Path)
    for name in ("", "a b", "a:b", "../a", None):
        with pytest.raises(UsageError, match="cannot be the name"):
            register(GROUP, name, Here)
