"""`paragrain import`: any data set as a collection."""

from paragrain.cli.import_ import listed, streamed  # noqa: F401  (they add their commands)
from paragrain.cli.import_.options import app

__all__ = ["app"]
