"""Replies read strictly: lists, paragraphs and scores, or a typed failure. Nothing here guesses."""

from paragrain.annotation.parsing.lists import Items, parse_items
from paragrain.annotation.parsing.paragraphs import parse_paragraph
from paragrain.annotation.parsing.scores import parse_score
from paragrain.annotation.parsing.texts import fold, gives_itself_away

__all__ = ["Items", "fold", "gives_itself_away", "parse_items", "parse_paragraph", "parse_score"]
