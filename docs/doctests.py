"""For the guide: worked examples in docstrings become blocks of code, wherever they stand."""

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"^>>> .*(?:\n.*\S.*)*", re.MULTILINE)


class Doctests(Extension):
    """Put fences around every run of lines that begins with a prompt and ends before a blank."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of one module, class or function."""
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
