"""Every setting of an annotation run, checked; from plain values as a YAML file has them."""

import json
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from paragrain.annotation.prompts import PromptSet
from paragrain.errors import UsageError

T = TypeVar("T", bound=BaseModel)
_PIECE = 65536  # bytes
Share = Annotated[float, Field(ge=0, le=1)]
Tokens = Annotated[int, Field(ge=1)]


class Settings(BaseModel):
    """Settings that do not change, and have no unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class SceneErrors(Settings):
    """How often the backend `scenes` errs, and how; all zero is a perfect annotator.

    Attributes:
        false_caption: share of captions with one fact wrong.
        true_negative: share of hard negatives that are in fact true.
        false_sentence: share of a paragraph's sentences with one fact wrong.
        lenient: share of paragraphs with a wrong fact that the judge scores 8 to 10.
        harsh: share of faultless paragraphs that the judge scores 0 to 5.
        preamble: share of lists wrapped in a preamble and a sign-off.
        short_list: share of lists that lack items.
        repeat: share of lists in which one item comes twice.
        refusal: share of replies that decline.
        unclear: share of judge's replies without a number.
        truncated: share of replies that end in mid-word at the token limit.
    """

    false_caption: Share = 0.0
    true_negative: Share = 0.0
    false_sentence: Share = 0.0
    lenient: Share = 0.0
    harsh: Share = 0.0
    preamble: Share = 0.0
    short_list: Share = 0.0
    repeat: Share = 0.0
    refusal: Share = 0.0
    unclear: Share = 0.0
    truncated: Share = 0.0


class BackendSettings(Settings):
    """Where a model is and how it is asked.

    Attributes:
        backend: "openai" for any server that speaks its protocol, "transformers" for a model in
            this process, "scenes" for answers from a drawn scene's graph.
        model: name on the server, folder or Hub name, or "scenes".
        endpoint: the server's URL, such as http://localhost:8000/v1; None for the hosted
            default of the client.
        key_env: name of the environment variable that holds the key.
        max_concurrency: most requests at once.
        timeout: seconds that one request may take.
        retry_timeout: seconds for which a request with a transient failure is sent again.
        structured: whether answers are held to a JSON schema: "auto" tries, and falls back.
        batch_size: images a batch, for "transformers".
        device: for "transformers"; by default a CUDA card if there is one.
        errors: for "scenes".
    """

    backend: Literal["openai", "transformers", "scenes"] = "openai"
    model: str
    endpoint: str | None = None
    key_env: Annotated[str, Field(pattern=r"^\w+$")] = "OPENAI_API_KEY"
    max_concurrency: Annotated[int, Field(ge=1, le=10_000)] = 32
    timeout: Annotated[float, Field(gt=0)] = 180.0
    retry_timeout: Annotated[float, Field(ge=0)] = 900.0
    structured: Literal["auto", "on", "off"] = "auto"
    batch_size: Annotated[int, Field(ge=1)] = 8
    device: str | None = None
    errors: SceneErrors = SceneErrors()

    @property
    def name(self) -> str:
        """What tells the model from others, in annotations and in the log.

        A folder is named by its last part and a digest of its weights: moving it changes nothing,
        training on makes it another.

        >>> rates = SceneErrors(lenient=0.2)
        >>> BackendSettings(backend="scenes", model="scenes", errors=rates).name
        'scenes lenient=0.2'
        """
        if self.backend == "scenes":
            rates = self.errors.model_dump(exclude_defaults=True)
            return " ".join(["scenes", *(f"{name}={rate:g}" for name, rate in rates.items())])
        folder = Path(self.model).expanduser()
        if self.backend == "transformers" and folder.is_dir():
            return f"{folder.resolve().name} {_weights_digest(folder)}"
        return self.model

    @field_validator("endpoint")
    @classmethod
    def _is_url(cls, endpoint: str | None) -> str | None:
        if endpoint is not None and not is_url(endpoint):
            raise ValueError("it is no URL such as http://localhost:8000/v1")
        return endpoint


SAYS = {"backend", "model", "errors"}
"""Settings of a backend that decide what it says; the others decide how it is asked."""


@lru_cache(maxsize=16)
def _weights_digest(folder: Path) -> str:
    """8 hexadecimal digits of a checkpoint: its configuration, and a piece of each weight file."""
    digest = blake2b(digest_size=4)
    for path in sorted([*folder.glob("*.json"), *folder.glob("*.safetensors")]):
        digest.update(f"{path.name} {path.stat().st_size}".encode())
        with path.open("rb") as file:
            digest.update(file.read(_PIECE))
            file.seek(max(0, path.stat().st_size - _PIECE))
            digest.update(file.read(_PIECE))
    return digest.hexdigest()


class ImageRule(Settings):
    """Which images are sent, and how: upright, first frame, scaled down, encoded anew as JPEG.

    Attributes:
        min_side: an image with a shorter side is not sent. Several models crash on images of
            less than their 28-pixel patches, or describe what is not there.
        max_ratio: nor is one whose sides differ by more than this factor: scaled down, too little
            of it is left to see.
        max_side: longer sides are scaled down to so many pixels.
        quality: of the JPEG, 1 to 95.
    """

    min_side: Annotated[int, Field(ge=1)] = 28
    max_ratio: Annotated[float, Field(ge=1)] = 10.0
    max_side: Annotated[int, Field(ge=28)] = 1024
    quality: Annotated[int, Field(ge=1, le=95)] = 90


class AnnotationSettings(Settings):
    """What is written for each image, by whom, and when it is good enough.

    Attributes:
        generator: writes captions, hard negatives and paragraphs.
        judge: scores paragraphs; None for no scores. Equal to `generator` where one model does
            both.
        texts: the kinds to write.
        captions, negatives: number of captions and of hard negatives an image.
        temperature: of the generator; the judge is always greedy.
        top_p: nucleus of the generator.
        captions_tokens, negatives_tokens, paragraph_tokens, judge_tokens: most tokens of a reply.
        most_tokens: a reply that was truncated is given up to so many; models that think before
            they answer take hundreds.
        min_score: a paragraph that scores this or less is written again.
        num_candidates: most paragraphs written for an image; the best is kept.
        max_retries: most times that one question is asked again until its reply can be read.
        seed: of all sampling.
        replace: whether to write texts anew that came with the collection.
        image: how images are sent.
        prompts: what is asked.
    """

    generator: BackendSettings
    judge: BackendSettings | None = None
    texts: tuple[Literal["captions", "negatives", "paragraph"], ...] = (
        "captions",
        "negatives",
        "paragraph",
    )
    captions: Annotated[int, Field(ge=1, le=20)] = 5
    negatives: Annotated[int, Field(ge=1, le=20)] = 5
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.7
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.9
    captions_tokens: Tokens = 160
    negatives_tokens: Tokens = 200
    paragraph_tokens: Tokens = 200
    judge_tokens: Tokens = 16
    most_tokens: Tokens = 8192
    min_score: Annotated[int, Field(ge=-1, le=10)] = 5
    num_candidates: Annotated[int, Field(ge=1)] = 3
    max_retries: Annotated[int, Field(ge=0)] = 2
    seed: int = 0
    replace: bool = False
    image: ImageRule = ImageRule()
    prompts: PromptSet = PromptSet()

    @model_validator(mode="after")
    def _check(self) -> "AnnotationSettings":
        if not self.texts or len(set(self.texts)) < len(self.texts):
            raise ValueError("texts names each kind once, and at least one")
        return self

    def public(self) -> dict[str, Any]:
        """As plain values, without what may be secret in a URL."""
        value = self.model_dump(mode="json")
        for name in ("generator", "judge"):
            if value[name] and value[name]["endpoint"]:
                value[name]["endpoint"] = without_secrets(value[name]["endpoint"])
        return value


def checked(kind: type[T], **values: Any) -> T:
    """Settings of a kind from plain values, as a command line or a file has them.

    Raises:
        UsageError: an unknown name, or a value out of range.

    >>> checked(AnnotationSettings, generator={"model": "any"}, num_candidates=2).num_candidates
    2
    >>> checked(AnnotationSettings, generator={"model": "any"}, num_candidates=0)
    Traceback (most recent call last):
        ...
    paragrain.errors.UsageError: num_candidates is 0: input should be greater than or equal to 1
    """
    try:
        return kind(**values)
    except ValidationError as error:
        what = error.errors()[0]
        message = what["msg"].removeprefix("Value error, ")
        message = message[0].lower() + message[1:]
        names = [part for part in what["loc"] if isinstance(part, str)]
        where = ".".join(name for name in names if name not in ("generator", "judge", "image"))
        if "endpoint" in what["loc"]:  # where keys may stand
            raise UsageError(f"{where} cannot be used: {message}") from None
        raise UsageError(f"{where} is {what['input']!r}: {message}" if where else message) from None


def run_name(settings: AnnotationSettings) -> str:
    """16 hexadecimal digits of all settings that decide what is written."""
    asked = set(BackendSettings.model_fields) - SAYS
    value = settings.model_dump(mode="json", exclude={"generator": asked, "judge": asked})
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def without_secrets(url: str) -> str:
    """A URL without user, password and query, where keys stand.

    >>> without_secrets("https://me:secret@example.com:8000/v1?key=abc")
    'https://example.com:8000/v1'
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_url(endpoint: str) -> bool:
    """Whether an endpoint is the URL of a server.

    >>> is_url("http://localhost:8000/v1"), is_url("localhost:8000"), is_url("http://[")
    (True, False, False)
    """
    try:
        parts = urlsplit(endpoint.strip())
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
