"""Any Hugging Face model by its `model_type`: the bare model, without what was trained on top."""

from pathlib import Path
from typing import Any

import torch
from transformers import MODEL_MAPPING, AutoConfig

from paragrain.encoders.note import NOTE
from paragrain.encoders.weights import (
    first_line,
    make_model,
    quiet_transformers,
    read_state,
    without_prefix,
)
from paragrain.errors import ParagrainError

_SAYS_NOTHING = {
    *("_name_or_path", "architectures", "transformers_version", "dtype", "torch_dtype"),
    *("id2label", "label2id", "problem_type", "use_cache", "auto_map", "image_processor_type"),
    *("feature_extractor_type", "processor_class", NOTE),
}


def load_bare(folder: Path, name: str) -> Any:
    """The model of a folder in float32 on the CPU, as `AutoModel` gives it.

    Heads for other tasks are left out. Where the checkpoint has no weights for the model's pooler
    (those of language models and of image classifiers do not), the model gets none; the library
    would make them up.

    Raises:
        ParagrainError: the library has no such model of its own, or the weights do not match.
    """
    try:
        with quiet_transformers():
            config = AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        kind = MODEL_MAPPING[type(config)]
        with torch.device("meta"):
            names = kind(config).state_dict().keys()
    except Exception as error:
        raise ParagrainError(
            f"{name} cannot be opened as a Hugging Face model ({first_line(error)}): use a "
            "checkpoint whose model_type transformers knows without code of its own"
        ) from error
    state = without_prefix(read_state(folder, name))
    prefix = kind.base_model_prefix + "."
    within = any(key.startswith(prefix) for key in state)
    if within and not any(key.startswith(prefix) for key in names):
        state = {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
    made_up = _has_pooler(names) and not _has_pooler(state)
    return make_model(
        kind, config, state, name, **({"add_pooling_layer": False} if made_up else {})
    )


def _has_pooler(names: Any) -> bool:
    return any(name.startswith("pooler.") for name in names)


def plain_settings(part: Any) -> dict[str, Any]:
    """What a configuration or processor says about how it computes: not names and versions."""
    return {key: value for key, value in part.to_dict().items() if key not in _SAYS_NOTHING}
