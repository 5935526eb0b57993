"""What the models are asked, word for word; versioned, and open to a user's own wording.

The requirements are those of the paper "A Paragraph is Worth a Thousand Captions"; the wording is
this project's. Raise `VERSION` with every change of a default: it stands in each annotation.
"""

import re
import string
from hashlib import blake2b
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from paragrain.errors import UsageError

VERSION = "1"

LONGEST_CAPTION = 1000
"""Characters of an original caption that are shown to the model; web texts can be whole pages."""

_TOKEN = re.compile(r"<(?=[|/]?\w)")

_PLACEHOLDERS = {
    "with_caption": {"caption"},
    "without_caption": set(),
    "captions": {"count"},
    "negatives": {"count"},
    "paragraph": set(),
    "judge": {"paragraph"},
    "list_format": {"count"},
    "json_format": {"count", "key"},
    "json_score": set(),
    "others": {"known"},
}


class PromptSet(BaseModel):
    """The templates; `{placeholders}` are filled in, each at least once where it has to be.

    Attributes:
        version: stands in each annotation; own templates need a version of their own.
        with_caption: opens every generation prompt; needs `{caption}`.
        without_caption: the same for an image that came without a caption.
        captions: asks for correct captions; needs `{count}`.
        negatives: asks for captions that are wrong; needs `{count}`.
        paragraph: asks for one paragraph.
        judge: asks for a score; needs `{paragraph}`.
        list_format: closes a list prompt; needs `{count}`.
        json_format: closes a list prompt to a server that is held to a schema; needs `{count}`
            and `{key}`.
        json_score: the same for a score.
        others: added where some items are there already; needs `{known}`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str = VERSION
    with_caption: str = (
        "You are an expert image-language assistant. You see an image, and you are given the "
        "caption that came with it:\n\n{caption}\n\n"
        "Use both. The caption may be vague, incomplete or wrong: where the two disagree, "
        "believe the image."
    )
    without_caption: str = (
        "You are an expert image-language assistant. You see an image that came without a "
        "caption. Look at it closely."
    )
    captions: str = (
        "Write {count} captions for this image. Each is one sentence and correct, and each differs "
        "from the given caption and from the others in wording or in what it draws attention to. "
        "State only what can be seen."
    )
    negatives: str = (
        "Write {count} captions that are wrong for this image. Each has the style and the length "
        "of the given caption, or of a usual short caption if none is given, and sounds plausible, "
        "but gets at least one important visual detail wrong: an object, a count, a colour, an "
        "action, a relation or the scene. Vary which detail is wrong. Never say or hint that a "
        "caption is wrong."
    )
    paragraph: str = (
        "Describe this image in one paragraph of three to six fluent sentences. Cover the objects, "
        "their attributes, how they relate to each other, and the scene as a whole. State only "
        "what can be seen, and do not speak of a caption. Answer with the paragraph alone."
    )
    judge: str = (
        "Here is a description of the image you see:\n\n{paragraph}\n\n"
        "How faithful is it to the image? Judge faithfulness alone, neither style nor length. "
        "Answer with a single whole number from 0 to 10: 0 means wrong, 5 partly correct, 10 "
        "accurate and detailed."
    )
    list_format: str = (
        "Answer with a numbered list from 1 to {count}, one item a line, and nothing else."
    )
    json_format: str = (
        'Answer with one JSON object that has the single key "{key}", a list of {count} strings.'
    )
    json_score: str = 'Give the number as one JSON object that has the single key "score".'
    others: str = "These are there already, so write different ones:\n{known}"

    @model_validator(mode="after")
    def _check(self) -> "PromptSet":
        for name, needed in _PLACEHOLDERS.items():
            found = _fields(name, getattr(self, name))
            if missing := needed - found:
                raise ValueError(f"the template `{name}` lacks the placeholder {{{min(missing)}}}")
            if foreign := found - needed:
                raise ValueError(
                    f"the template `{name}` has the placeholder {{{min(foreign)}}}, which nothing "
                    "fills in (write {{ and }} for braces that are meant)"
                )
        return self

    def generation(
        self, kind: str, caption: str | None, count: int = 0, known: list[str] | None = None
    ) -> tuple[str, str | None]:
        """The prompt for captions, negatives or a paragraph, and the same asking for JSON.

        Args:
            kind: "captions", "negatives" or "paragraph".
            caption: the original caption, if there is one.
            count: number of items; for lists only.
            known: items that are there already.

        Returns:
            The prompt, and for lists its form for JSON (else None).

        >>> prompt, as_json = PromptSet().generation("captions", "a dog", 5)
        >>> print(prompt.splitlines()[-1])
        Answer with a numbered list from 1 to 5, one item a line, and nothing else.
        >>> print(as_json.splitlines()[-1])
        Answer with one JSON object that has the single key "captions", a list of 5 strings.
        """
        caption = _one_line(caption)
        parts = [self.with_caption.format(caption=caption) if caption else self.without_caption]
        if kind == "paragraph":
            return "\n\n".join([parts[0], self.paragraph.format()]), None
        parts.append(getattr(self, kind).format(count=count))
        if known:
            parts.append(self.others.format(known="\n".join(f"- {text}" for text in known)))
        end = self.list_format.format(count=count)
        json_end = self.json_format.format(count=count, key=kind)
        return "\n\n".join([*parts, end]), "\n\n".join([*parts, json_end])

    def wording(self, kind: str) -> str:
        """What the templates of a generation prompt say, without what is filled in.

        >>> "State only what can be seen" in PromptSet().wording("paragraph")
        True
        """
        names = ("with_caption", "without_caption", kind, "list_format", "json_format")
        return "\n".join(
            text for name in names for text, *_ in string.Formatter().parse(getattr(self, name))
        )

    def judging(self, paragraph: str) -> tuple[str, str]:
        """The prompt that asks for the score of a paragraph, and the same asking for JSON."""
        prompt = self.judge.format(paragraph=paragraph)
        return prompt, f"{prompt}\n\n{self.json_score.format()}"


def schema(kind: str, count: int) -> dict[str, Any]:
    """The JSON schema of an answer: `{"captions": [...]}`, `{"negatives": [...]}`, `{"score": 7}`.

    >>> schema("judge", 0)["properties"]
    {'score': {'type': 'integer', 'minimum': 0, 'maximum': 10}}
    """
    if kind == "judge":
        properties: dict[str, Any] = {"score": {"type": "integer", "minimum": 0, "maximum": 10}}
    else:
        items = {"type": "array", "items": {"type": "string"}}
        properties = {kind: {**items, "minItems": count, "maxItems": count}}
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def load_prompts(path: Path) -> PromptSet:
    """Read a user's templates from YAML; those that it leaves out keep their defaults.

    A file without `version` gets one from its content, such as "custom-1f0c2a9b".

    Raises:
        UsageError: no such file, no YAML, an unknown name, or a placeholder missing or unknown.
    """
    try:
        text = path.read_text(encoding="utf-8")
        values = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"the templates {path} cannot be read: {_gist(error)}") from error
    if not isinstance(values, dict) or not values:
        raise UsageError(f"{path} holds no templates: write `captions: ...`, `judge: ...`")
    names = PromptSet.model_fields
    if foreign := [str(name) for name in values if name not in names]:
        raise UsageError(
            f"{path}: there is no template {foreign[0]!r}: choose from {', '.join(names)}"
        )
    digest = blake2b(text.encode(), digest_size=4).hexdigest()
    try:
        return PromptSet(**{"version": f"custom-{digest}", **values})
    except (ValidationError, TypeError) as error:
        what = error.errors()[0] if isinstance(error, ValidationError) else {"msg": str(error)}
        where = ".".join(map(str, what.get("loc", ())))
        reason = str(what["msg"]).removeprefix("Value error, ")
        raise UsageError(f"{path}: {where + ': ' if where else ''}{reason}") from error


def _gist(error: Exception) -> str:
    """What is wrong with a file, in one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem} in line {error.problem_mark.line + 1}"
    return str(error).splitlines()[0]


def _fields(name: str, template: str) -> set[str]:
    """The placeholders of a template; only plain `{names}` are allowed."""
    try:
        parsed = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"the template `{name}` has an unpaired brace ({error})") from error
    return {field for _, field, _, _ in parsed if field is not None}


def _one_line(caption: str | None) -> str | None:
    """A caption in one line, truncated at a word if it is very long; None if it is empty.

    What looks like a control token, such as `<image>`, is set apart: models count those.
    """
    words = _TOKEN.sub("< ", " ".join((caption or "").split()))
    if len(words) > LONGEST_CAPTION:
        words = words[:LONGEST_CAPTION].rsplit(" ", 1)[0] + " ..."
    return words or None
