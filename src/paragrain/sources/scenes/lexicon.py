"""The words of the procedural world: every attribute value and the two words that name it.

The first word of each pair belongs to the training style of paragraphs, the second to the
held-out long style; short captions use both. No word names two things, so that a sentence can be
read back (see `truth`).
"""

COLOURS: dict[str, tuple[str, str]] = {
    "red": ("red", "crimson"),
    "orange": ("orange", "amber"),
    "yellow": ("yellow", "golden"),
    "green": ("green", "emerald"),
    "blue": ("blue", "azure"),
    "purple": ("purple", "violet"),
    "pink": ("pink", "rosy"),
    "brown": ("brown", "chestnut"),
    "black": ("black", "ebony"),
    "white": ("white", "ivory"),
}
SHAPES: dict[str, tuple[str, str]] = {
    "circle": ("circle", "disc"),
    "square": ("square", "box"),
    "triangle": ("triangle", "pyramid"),
    "diamond": ("diamond", "rhombus"),
    "star": ("star", "starburst"),
    "cross": ("cross", "plus"),
    "heart": ("heart", "valentine"),
    "crescent": ("crescent", "moon"),
    "ring": ("ring", "hoop"),
    "arrow": ("arrow", "pointer"),
}
SIZES: dict[str, tuple[str, str]] = {
    "small": ("small", "tiny"),
    "medium": ("medium", "middling"),
    "large": ("large", "huge"),
}
PATTERNS: dict[str, tuple[str, str]] = {
    "plain": ("plain", "solid"),
    "striped": ("striped", "lined"),
    "dotted": ("dotted", "spotted"),
}
BACKGROUNDS: dict[str, tuple[str, str]] = {
    "cream": ("cream", "vanilla"),
    "grey": ("grey", "ash"),
    "teal": ("teal", "turquoise"),
    "lavender": ("lavender", "lilac"),
    "mint": ("mint", "pistachio"),
    "navy": ("navy", "midnight"),
    "peach": ("peach", "apricot"),
    "charcoal": ("charcoal", "slate"),
}
# Row by row from the upper left; index = 3 * row + column.
PLACES: tuple[tuple[str, str], ...] = (
    ("upper left corner", "northwest"),
    ("top centre", "north"),
    ("upper right corner", "northeast"),
    ("left edge", "west"),
    ("centre", "middle"),
    ("right edge", "east"),
    ("lower left corner", "southwest"),
    ("bottom centre", "south"),
    ("lower right corner", "southeast"),
)
RELATIONS: dict[str, tuple[str, str]] = {
    "left of": ("to the left of", "left of"),
    "right of": ("to the right of", "right of"),
    "above": ("above", "over"),
    "below": ("below", "under"),
}
NUMBERS: tuple[str, ...] = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine",
)  # fmt: skip

OPPOSITE: dict[str, str] = {
    "left of": "right of",
    "right of": "left of",
    "above": "below",
    "below": "above",
}
