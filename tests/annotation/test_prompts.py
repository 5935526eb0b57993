"""Templates: what the paper asks for is in them, and a user's own are checked."""

from pathlib import Path

import pytest

from paragrain.annotation.prompts import LONGEST_CAPTION, VERSION, PromptSet, load_prompts
from paragrain.errors import UsageError

PROMPTS = PromptSet()


@pytest.mark.parametrize("kind", ["captions", "negatives", "paragraph"])
def test_every_generation_prompt_opens_with_the_same_preamble_and_the_caption(kind: str) -> None:
    prompt, _ = PROMPTS.generation(kind, "A dog  on\na sofa {really}", 5)
    assert prompt.startswith("You are an expert image-language assistant.")
    assert "A dog on a sofa {really}" in prompt  # in one line, braces untouched
    assert "Use both." in prompt


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("captions", ["5 captions", "one sentence", "correct", "differs", "from 1 to 5"]),
        ("negatives", ["5 captions that are wrong", "style and the length", "plausible", "object",
                       "count", "colour", "action", "relation", "scene", "Never say or hint"]),
        ("paragraph", ["three to six fluent sentences", "objects", "attributes", "relate", "scene",
                       "do not speak of a caption"]),
    ],
)  # fmt: skip
def test_the_requirements_of_the_recipe_are_in_the_prompts(kind: str, wanted: list[str]) -> None:
    prompt, _ = PROMPTS.generation(kind, "a dog", 5)
    assert [phrase for phrase in wanted if phrase not in prompt] == []


def test_the_judge_is_asked_for_faithfulness_alone_on_the_scale_of_the_recipe() -> None:
    prompt, as_json = PROMPTS.judging("A dog {x} runs.")
    for phrase in ("A dog {x} runs.", "faithfulness alone", "0 to 10", "5 partly correct"):
        assert phrase in prompt
    assert as_json.startswith(prompt)
    assert '"score"' in as_json


@pytest.mark.parametrize("caption", [None, "", " \n "])
def test_an_image_without_a_caption_is_not_said_to_have_one(caption: str | None) -> None:
    prompt, _ = PROMPTS.generation("paragraph", caption)
    assert "without a caption" in prompt
    assert "given the caption" not in prompt


def test_a_web_page_for_a_caption_is_cut_at_a_word() -> None:
    prompt, _ = PROMPTS.generation("paragraph", "word " * 1000)
    assert prompt.count("word ") <= LONGEST_CAPTION // 5
    assert "word ..." in prompt


def test_missing_items_are_asked_for_with_those_that_are_there() -> None:
    prompt, as_json = PROMPTS.generation("captions", "a dog", 2, ["A cat sits.", "A cat {x}."])
    assert "Write 2 captions" in prompt
    assert "- A cat sits.\n- A cat {x}." in prompt
    assert as_json is not None
    assert "a list of 2 strings" in as_json


def test_own_templates_keep_the_other_defaults_and_get_a_version(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text('captions: "Give {count} captions, {{in braces}}."')
    own = load_prompts(file)
    assert own.version.startswith("custom-")
    assert own.judge == PROMPTS.judge
    assert "Give 3 captions, {in braces}." in own.generation("captions", "a dog", 3)[0]
    file.write_text('version: mine\ncaptions: "Give {count} captions."')
    assert load_prompts(file).version == "mine"
    assert PROMPTS.version == VERSION


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("captions: Give some.", "lacks the placeholder {count}"),
        ("judge: Is it good?", "lacks the placeholder {paragraph}"),
        ("judge: '{paragraph} {image}'", "has the placeholder {image}"),
        ("paragraph: 'Describe {this.'", "unpaired brace"),
        ("captains: 'Give {count}.'", "there is no template 'captains'"),
        ("captions: 5", "captions"),
        ("- captions", "holds no templates"),
        ("", "holds no templates"),
        ("captions: [", "cannot be read"),
    ],
)
def test_wrong_templates_are_one_sentence(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r".") as error:
        load_prompts(file)
    assert reason in str(error.value)
    assert str(file) in str(error.value)
    with pytest.raises(UsageError, match="cannot be read"):
        load_prompts(tmp_path / "none.yaml")
