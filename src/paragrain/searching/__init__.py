"""Ask a collection in words, exactly."""

from paragrain.searching.search import Hit, SearchResult, search

__all__ = ["Hit", "SearchResult", "search"]
