"""Results as plain data for JSON, and back by the types of their fields."""

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np

from paragrain.stats import Estimate


def to_plain(value: Any, digits: int = 4) -> Any:
    """A result as plain data: floats rounded, arrays as lists, NaN as None, bytes in base64.

    >>> to_plain({"a": np.array([0.123456, np.nan]), "b": (1, "x")})
    {'a': [0.1235, None], 'b': [1, 'x']}
    """
    if isinstance(value, Estimate):
        return value.as_dict(digits)
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: to_plain(part, digits) for key, part in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [to_plain(part, digits) for part in value]
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, digits)
    return value


def from_plain(kind: Any, plain: Any) -> Any:
    """What `to_plain` gave, as `kind`: a dataclass, or what such a field may be.

    >>> from_plain(dict[str, list[float]], {"a": [1.5, None]})
    {'a': [1.5, nan]}

    Raises:
        KeyError, TypeError, ValueError: it is nothing of that kind.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if NoneType in parts:
        return None if plain is None else from_plain(parts[0], plain)
    if kind is float:
        return math.nan if plain is None else float(plain)
    if kind is bytes:
        return base64.b64decode(plain)
    if kind is np.ndarray:
        return np.array(plain, dtype=float)
    if kind is Estimate:
        return Estimate.from_dict(plain)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        known = {name: from_plain(hints[name], plain[name]) for name in hints if name in plain}
        return kind(**known)
    if origin is tuple:
        return tuple(from_plain(parts[0], part) for part in plain)
    if origin is list:
        return [from_plain(parts[0], part) for part in plain]
    if origin is dict:
        return {key: from_plain(parts[1], part) for key, part in plain.items()}
    return plain


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
