"""Exact retrieval ranks in bounded memory, recall with honest ties, exact nearest neighbours."""

from paragrain.retrieval.ranks import (
    TIE,
    DirectionRanks,
    Ranks,
    RanksPair,
    exact_ranks,
    group_numbers,
)
from paragrain.retrieval.recall import (
    DirectionScores,
    RetrievalScores,
    ScoresPair,
    hit_probability,
    recall_at,
    retrieval_scores,
    scores_from_ranks,
)
from paragrain.retrieval.topk import Gallery, top_k

__all__ = [
    "TIE",
    "DirectionRanks",
    "DirectionScores",
    "Gallery",
    "Ranks",
    "RanksPair",
    "RetrievalScores",
    "ScoresPair",
    "exact_ranks",
    "group_numbers",
    "hit_probability",
    "recall_at",
    "retrieval_scores",
    "scores_from_ranks",
    "top_k",
]
