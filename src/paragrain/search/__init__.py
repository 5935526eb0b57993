"""Ask a collection in words, exactly."""

from paragrain.search.search import Hit, SearchResult, search

__all__ = ["Hit", "SearchResult", "search"]
