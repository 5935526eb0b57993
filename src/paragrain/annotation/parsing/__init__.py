"""Replies read strictly: lists, paragraphs and scores, or a typed failure."""

from paragrain.annotation.parsing.folding import fold, gives_itself_away
from paragrain.annotation.parsing.replies import Items, parse_items, parse_paragraph, parse_score

__all__ = ["Items", "fold", "gives_itself_away", "parse_items", "parse_paragraph", "parse_score"]
