"""A run from the flat keys of a settings file, or of `--set`: who is asked what, and how."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from paragrain.annotation.prompts import load_prompts
from paragrain.annotation.settings import (
    AnnotationSettings,
    BackendSettings,
    ImageRule,
    Settings,
    checked,
)
from paragrain.errors import UsageError


class RunKeys(Settings):
    """What a settings file says beside the fields of other settings.

    Attributes:
        judge: the model that scores the paragraphs, "same", or "none".
        judge_endpoint: URL of the judge's server, if it is another one.
        judge_key_env: the same for the name of its key's variable.
        runner: "ray" for many machines.
        workers: for ray: processes; by default one a CPU.
        rate: for a plan: requests a second.
        price_in, price_out: for a plan: of a million tokens read, and written.
    """

    judge: str = "same"
    judge_endpoint: str | None = None
    judge_key_env: str | None = None
    runner: Literal["local", "ray"] = "local"
    workers: Annotated[int, Field(ge=1)] | None = None
    rate: Annotated[float, Field(ge=0.001)] | None = None
    price_in: Annotated[float, Field(ge=0)] | None = None
    price_out: Annotated[float, Field(ge=0)] | None = None


KEYS = {
    name: kind
    for kind in (RunKeys, BackendSettings, ImageRule, AnnotationSettings)
    for name in kind.model_fields
    if name not in ("generator", "image") and not (kind is AnnotationSettings and name == "judge")
}
"""Each key of a settings file, with the settings that it belongs to."""


def run_settings(
    values: dict[str, Any], *, asks: bool = True
) -> tuple[AnnotationSettings, RunKeys]:
    """The settings of a run from flat keys; and how it is run and planned.

    Args:
        values: of `KEYS`; `texts` may be one string with commas, `prompts` is a file.
        asks: whether a server may be asked which model it offers.

    Raises:
        UsageError: an unknown key, a value out of range, or nobody to ask.

    >>> wanted, how = run_settings({"backend": "scenes", "judge": "none", "max_side": 512})
    >>> wanted.generator.model, wanted.judge, wanted.image.max_side
    ('scenes', None, 512)
    """
    if unknown := [name for name in values if name not in KEYS]:
        raise UsageError(f"there is no setting {unknown[0]!r}: choose from {', '.join(KEYS)}")

    def of(kind: type[BaseModel]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if KEYS[name] is kind}

    how = checked(RunKeys, **of(RunKeys))
    if (how.price_in is None) != (how.price_out is None):
        raise UsageError("the cost needs both prices: set price_in and price_out")
    own, asked = of(AnnotationSettings), of(BackendSettings)
    if not asks:
        asked = {"model": "any", **asked}
    if "errors" in asked and asked.get("backend") != "scenes":
        raise UsageError("errors belong to --backend scenes: add that, or leave them out")
    generator = _backend_settings(asked)
    judge: BackendSettings | None = generator
    if how.judge == "none":
        judge = None
    elif how.judge != "same" or how.judge_endpoint:
        asked |= {
            "backend": "openai" if how.judge_endpoint else generator.backend,
            "endpoint": how.judge_endpoint or generator.endpoint,
            "model": how.judge if how.judge != "same" else None if asks else "any",
            "key_env": how.judge_key_env or generator.key_env,
        }
        judge = _backend_settings(asked)
    if isinstance(own.get("texts"), str):
        own["texts"] = [part.strip() for part in own["texts"].split(",") if part.strip()]
    if "prompts" in own:
        own["prompts"] = load_prompts(Path(str(own["prompts"])))
    rule = checked(ImageRule, **of(ImageRule))
    return checked(AnnotationSettings, generator=generator, judge=judge, image=rule, **own), how


def _backend_settings(values: dict[str, Any]) -> BackendSettings:
    """A backend, and the model that its server offers where none is named."""
    backend, endpoint = values.get("backend", "openai"), values.get("endpoint")
    model = values.get("model")
    if endpoint and backend in ("scenes", "transformers"):
        raise UsageError(f"--backend {backend} asks no server: leave --endpoint or --backend out")
    if backend == "scenes":
        model = "scenes"
    elif model is None and backend == "transformers":
        raise UsageError("--backend transformers needs --model: a folder, or a Hub name")
    elif model is None:
        from paragrain.annotation.backends import only_model

        key_env = str(values.get("key_env", "OPENAI_API_KEY"))
        if endpoint is None and key_env not in os.environ:
            raise UsageError(
                "there is no model to ask: give the --endpoint of a server, or --backend "
                "transformers and a --model"
            )
        model = only_model(endpoint, key_env)
    return checked(BackendSettings, **{**values, "model": model})
