"""Every setting of an annotation run, checked."""

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


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


OPERATION = {
    "endpoint",
    "key_env",
    "in_flight",
    "timeout",
    "patience",
    "structured",
    "batch_size",
    "device",
}
"""Settings of a backend that decide how it is asked, and not what it says."""


class SceneErrors(_Settings):
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
        cut: share of replies that end in mid-word at the token limit.
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
    cut: Share = 0.0


class BackendSettings(_Settings):
    """Where a model is and how it is asked.

    Attributes:
        backend: "openai" for any server that speaks its protocol, "transformers" for a model in
            this process, "scenes" for answers from a drawn scene's graph.
        model: name on the server, folder or Hub name, or "scenes".
        endpoint: the server's address, such as http://localhost:8000/v1; None for the hosted
            default of the client.
        key_env: name of the environment's variable that holds the key.
        in_flight: most requests under way at once.
        timeout: seconds that one request may take.
        patience: seconds for which a request that fails in passing is tried again.
        structured: whether answers are held to a JSON schema: "auto" tries, and falls back.
        batch_size: images a batch, for "transformers".
        device: for "transformers"; by default a CUDA card if there is one.
        errors: for "scenes".
    """

    backend: Literal["openai", "transformers", "scenes"] = "openai"
    model: str
    endpoint: str | None = None
    key_env: Annotated[str, Field(pattern=r"^\w+$")] = "OPENAI_API_KEY"
    in_flight: Annotated[int, Field(ge=1, le=10_000)] = 32
    timeout: Annotated[float, Field(gt=0)] = 180.0
    patience: Annotated[float, Field(ge=0)] = 900.0
    structured: Literal["auto", "on", "off"] = "auto"
    batch_size: Annotated[int, Field(ge=1)] = 8
    device: str | None = None
    errors: SceneErrors = SceneErrors()

    @property
    def name(self) -> str:
        """The model's name as it stands in annotations: no path, and all that makes it another.

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
    def _is_address(cls, endpoint: str | None) -> str | None:
        if endpoint is not None and not is_address(endpoint):
            raise ValueError("it is no address such as http://localhost:8000/v1")
        return endpoint


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


class ImageRule(_Settings):
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


class AnnotationSettings(_Settings):
    """What is written for each image, by whom, and when it is good enough.

    Attributes:
        generator: writes captions, hard negatives and paragraphs.
        judge: scores paragraphs; None for no scores. Equal to `generator` where one model does
            both.
        texts: the kinds to write.
        captions: number of captions an image.
        negatives: number of hard negatives an image.
        temperature: of the generator; the judge is always greedy.
        top_p: nucleus of the generator.
        captions_tokens: most tokens of a reply with captions.
        negatives_tokens: most tokens of a reply with hard negatives.
        paragraph_tokens: most tokens of a paragraph.
        judge_tokens: most tokens of a judge's reply.
        most_tokens: up to so many are given to a reply that was cut; models that think before they
            answer take hundreds.
        min_score: a paragraph that scores this or less is written again.
        attempts: most paragraphs written for an image; the best is kept.
        tries: most times that one question is asked until its reply can be read.
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
    captions_tokens: Annotated[int, Field(ge=1)] = 160
    negatives_tokens: Annotated[int, Field(ge=1)] = 200
    paragraph_tokens: Annotated[int, Field(ge=1)] = 200
    judge_tokens: Annotated[int, Field(ge=1)] = 16
    most_tokens: Annotated[int, Field(ge=1)] = 8192
    min_score: Annotated[int, Field(ge=-1, le=10)] = 5
    attempts: Annotated[int, Field(ge=1)] = 3
    tries: Annotated[int, Field(ge=1)] = 3
    seed: int = 0
    replace: bool = False
    image: ImageRule = ImageRule()
    prompts: PromptSet = PromptSet()

    @model_validator(mode="after")
    def _check(self) -> "AnnotationSettings":
        if not self.texts or len(set(self.texts)) < len(self.texts):
            raise ValueError("texts names each kind once, and at least one")
        return self


def make_settings(**values: Any) -> AnnotationSettings:
    """Settings from plain values, as a command line or a file has them.

    Raises:
        UsageError: an unknown name, or a value out of range.

    >>> make_settings(generator={"model": "any"}, attempts=2).attempts
    2
    >>> make_settings(generator={"model": "any"}, attempts=0)
    Traceback (most recent call last):
        ...
    paragrain.errors.UsageError: attempts is 0: input should be greater than or equal to 1
    """
    return _checked(AnnotationSettings, values)


def make_backend_settings(**values: Any) -> BackendSettings:
    """Settings of one backend from plain values.

    Raises:
        UsageError: an unknown name, or a value out of range.
    """
    return _checked(BackendSettings, values)


def _checked(kind: type[T], values: dict[str, Any]) -> T:
    try:
        return kind(**values)
    except ValidationError as error:
        what = error.errors()[0]
        message = what["msg"].removeprefix("Value error, ")
        message = message[0].lower() + message[1:]
        names = [part for part in what["loc"] if isinstance(part, str)]
        where = ".".join(name for name in names if name not in ("generator", "judge"))
        if "endpoint" in what["loc"]:  # where keys may stand
            raise UsageError(f"{where} cannot be used: {message}") from None
        raise UsageError(f"{where} is {what['input']!r}: {message}" if where else message) from None


def run_name(settings: AnnotationSettings) -> str:
    """16 hexadecimal digits of all settings that decide what is written."""
    value = settings.model_dump(mode="json", exclude={"generator": OPERATION, "judge": OPERATION})
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()


def without_secrets(address: str) -> str:
    """An address without user, password and query, where keys stand.

    >>> without_secrets("https://me:secret@example.com:8000/v1?key=abc")
    'https://example.com:8000/v1'
    """
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_address(endpoint: str) -> bool:
    """Whether an endpoint is the address of a server.

    >>> is_address("http://localhost:8000/v1"), is_address("localhost:8000"), is_address("http://[")
    (True, False, False)
    """
    try:
        parts = urlsplit(endpoint.strip())
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
