"""Ask a collection in words, exactly."""

from paragrain.searching.search import Hit, Searcher, SearchResult, search

__all__ = ["Hit", "SearchResult", "Searcher", "search"]
