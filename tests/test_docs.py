"""The guide: a page for every verb, commands that exist, tables that match, snippets that run."""

import doctest
import json
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer.main
import yaml

import paragrain as pg
from paragrain.annotation import load_prompts, run_settings
from paragrain.annotation.settings_file import KEYS
from paragrain.cli.app import app
from paragrain.collection import Collection
from paragrain.collection.fields import FIELDS
from paragrain.encoders import ImageTextEncoder
from paragrain.evaluation import load_protocol, protocols
from paragrain.study.plan import load_study
from paragrain.study.schema import CellGroup, StudyFile
from paragrain.training.config import MaxLengths, TrainConfig
from paragrain.training.recipes import load_recipe, parse_recipe, recipe_names

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(page for page in DOCS.rglob("*.md") if DOCS / "results" not in page.parents)
NAVIGATION: list[Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
VERBS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]

_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`paragrain ([\w-]+)[^`\n]*`")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def blocks(page: Path, language: str, of: str = "") -> list[str]:
    """The fenced blocks of a page, or of a section, in a language; without one, commands."""
    text = page.read_text("utf-8")
    text = text.split(f"\n## {of}\n")[1].split("\n## ")[0] if of else text
    return [m[3] for m in _FENCE.finditer(text) if m[2] == language]


def commands(page: Path) -> list[list[str]]:
    """The words of every `paragrain` command in the blocks of a page, without the first."""
    found = []
    for block in blocks(page, ""):
        for line in re.sub(r"\\\n", " ", block).splitlines():
            words = shlex.split(line, comments=True)
            for start in [place for place, word in enumerate(words) if word.endswith("paragrain")]:
                if start == 0 or words[0] == "torchrun":
                    found.append(words[start + 1 :])
    return found


def parse(words: list[str]) -> None:
    """Let the command line read the words as if they had been typed, and do nothing."""
    command, rest = VERBS[words[0]], words[1:]
    if hasattr(command, "commands"):
        if words[0] == "annotate" and rest[0] not in command.commands:
            rest = ["run", *rest]
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context(words[0], list(rest))


def first_column(page: str) -> list[str]:
    """What stands in backticks in the first column of the tables of a page."""
    rows = re.findall(r"^\| ([^|]+) \|", (DOCS / page).read_text("utf-8"), re.MULTILINE)
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def pages_of(entry: Any) -> list[tuple[str, str]]:
    """(title, page) of everything below an entry of the navigation."""
    if isinstance(entry, list):
        return [pair for part in entry for pair in pages_of(part)]
    [(title, inner)] = entry.items()
    return [(title, inner)] if isinstance(inner, str) else pages_of(inner)


def test_every_verb_has_a_page_and_every_page_is_in_the_navigation() -> None:
    titles = dict(pages_of(NAVIGATION))
    for verb in VERBS:
        assert any(words[0] == verb for words in commands(DOCS / titles[verb])), verb
    assert {DOCS / page for page in titles.values()} == set(PAGES)


@each_page
def test_the_commands_of_a_page_can_be_typed(page: Path) -> None:
    for words in commands(page):
        if words != ["--version"]:
            parse(words)
    assert set(_INLINE.findall(page.read_text("utf-8"))) <= set(VERBS)


def test_a_command_with_an_option_that_does_not_exist_is_seen() -> None:
    with pytest.raises(Exception, match="No such option"):
        parse(["train", "photos", "--recipes", "c5"])


@each_page
def test_a_page_names_no_place_of_this_machine(page: Path) -> None:
    assert not re.search(r"/(tmp|work|home|root|opt)/", page.read_text("utf-8"))


@each_page
def test_the_yaml_of_a_page_is_what_it_says(page: Path, tmp_path: Path) -> None:
    for text in blocks(page, "yaml"):
        content = yaml.safe_load(text)
        if "benchmarks" in content:
            StudyFile.model_validate(content)
        elif "groups" in content:
            [CellGroup.model_validate(group) for group in content["groups"].values()]
        elif page.name == "annotation.md" and set(content) <= set(KEYS):
            assert run_settings(content, asks=False)
        elif page.name == "annotation.md":
            (tmp_path / "prompts.yaml").write_text(text, "utf-8")
            assert load_prompts(tmp_path / "prompts.yaml").version == content["version"]
        else:
            assert parse_recipe(text, "nameless").name in content


def test_the_recipes_of_the_table_are_those_that_ship() -> None:
    text = (DOCS / "recipes.md").read_text("utf-8")
    rows = re.findall(r"^\| `(c\d+)`( \*)? \| .+ \| (.+) \|$", text, re.MULTILINE)
    assert [name for name, _, _ in rows] == recipe_names()
    for name, star, loss in rows:
        assert load_recipe(name).loss == loss
        assert bool(star) == ("inferred" in load_recipe(name).note)


def test_every_training_setting_is_told() -> None:
    told = {
        name.removeprefix("max_length.").removeprefix(".")
        for name in first_column("verbs/train.md")
    }
    assert told == (set(TrainConfig.model_fields) | set(MaxLengths.model_fields)) - {"max_length"}


def test_every_setting_of_an_annotation_is_told() -> None:
    text = (DOCS / "annotation.md").read_text("utf-8")
    table = text[text.index("| key | default | what |") :].partition("\n\n")[0]
    told = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.splitlines()[2:]]
    assert sorted(name for names in told for name in names) == sorted(KEYS)


def test_every_column_of_a_record_and_key_of_a_study_is_told() -> None:
    assert set(FIELDS) <= set(first_column("files.md"))
    assert set(first_column("verbs/study.md")) == set(StudyFile.model_fields)


def test_every_protocol_is_told_with_its_budget() -> None:
    text = (DOCS / "verbs/evaluate.md").read_text("utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| (\w+) \| (\w+) \| (\d+) \|", text, re.MULTILINE)
    assert [name for name, *_ in rows] == list(protocols())
    for name, split, texts, tokens in rows:
        rules = load_protocol(name)
        assert (split, texts, int(tokens)) == (rules.split or "all", rules.texts, rules.max_length)


def test_every_public_name_is_in_the_reference() -> None:
    named = re.findall(r"^::: ([\w.]+)$", (DOCS / "reference.md").read_text("utf-8"), re.MULTILINE)
    values = {name: getattr(pg, name) for name in pg.__all__}
    homes = [getattr(v, name) if isinstance(v, ModuleType) else v for name, v in values.items()]
    assert set(named) == {f"{home.__module__}.{home.__qualname__}" for home in homes}


def test_the_methods_of_an_encoder_are_told() -> None:
    assert set(first_column("adding.md")) == set(ImageTextEncoder.__abstractmethods__)


def test_the_snippets_on_adding_run(
    world: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "world").symlink_to(world.folder)
    names: dict[str, Any] = {"__name__": "guide"}
    nested = blocks(DOCS / "adding.md", "python", of="A nested field")  # of another package
    for block in blocks(DOCS / "adding.md", "python"):
        if block in nested:
            continue
        exec(compile(block, "adding.md", "exec"), names)
    finder = doctest.DocTestFinder()
    [example] = [t for t in finder.find(names["margin"], "margin", globs=names) if t.examples]
    assert doctest.DocTestRunner().run(example).failed == 0
    assert names["found"].low < names["found"].value < names["found"].high


def test_the_report_in_the_guide_is_that_of_the_study_as_it_is() -> None:
    study = load_study("scenes")
    results = json.loads((DOCS / "results/results.json").read_text("utf-8"))
    assert results["missing"] == []
    seeds = {row["model"]: len(row["seeds"]) for row in results["recalls"]}
    assert seeds == {name: len(cells) for name, cells in study.models.items()}
    assert [claim["claim"] for claim in results["claims"]] == [c.text for c in study.file.claims]


def test_the_readme_quotes_the_report() -> None:
    report = (DOCS / "results/report.md").read_text("utf-8")
    readme = (ROOT / "README.md").read_text("utf-8")
    section = readme.split("## The whole experiment\n")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    assert len(table) == 2 + 1 + 10  # head, BLIP0, ten recipes
    assert "\n".join(table) in report
