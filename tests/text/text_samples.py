"""Text to train small tokenizers on, and text that is hard to cut: seeded, so that every run is the same."""

import random
import unicodedata
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

SENTENCES = [
    "It's what they're saying: we've won, I'll go, he'd stay, I'm sure, don't, CAN'T, WE'LL, you'Re, it'ſ",
    "The quick brown fox jumps over 13 lazy dogs; 1234567890 and 3.14159e-10, ½ Ⅷ ٣٤٥ 万",
    "def f(x):\n    return [i**2 for i in range(10) if i % 2 == 0]  # squares\n\n\n\tpass\r\n",
    '<html><body class="a-b">&nbsp;</body></html>  {"key": [1, 2, {"a": null}]}',
    "Größe, naïve café, Ærøskøbing, İstanbul, ǅ titlecase, ﬁne ligature, e\u0301 combined, Å Å Å",
    "Привет, мир! Съешь же ещё этих мягких французских булок. Ελληνικά ΑΒΓ αβγ ς",
    "こんにちは世界。カタカナとひらがな、漢字。你好，世界！今天天气很好。한국어 문장입니다. 각",
    "مرحبا بالعالم، كَتَبَ. שָׁלוֹם עולם. नमस्ते दुनिया। สวัสดีชาวโลก ภาษาไทย தமிழ்",
    "🙂🙃 👩‍👩‍👧‍👦 🏳️‍🌈 🦙𝒜\u200d👩‍🚀 a🙂b ☃ ✈️ → ∑∫√ €£¥ … “quotes” — dash «x»",
    "camelCaseWords HTTPServer getURLs XMLHttpRequest snake_case_name SCREAMING_CASE don'tStop",
    "a  b   c    d\t\te\u00a0f\u3000g\u2028h\u180ei\u200bj\ufeffk\x85l\x0bm\x0cn\x1co",
    "https://example.com/path/to?q=1&r=2#frag user@example.org C:\\dir\\file.txt ~/x $HOME `ls`",
]

# (weight, first, last) of the characters that random strings are made of.
RANGES = [
    (30, 0x20, 0x7E), (6, 0x00, 0x1F), (6, 0x80, 0xFF), (4, 0x100, 0x24F), (3, 0x250, 0x36F), (3, 0x370, 0x52F),
    (3, 0x590, 0x6FF), (3, 0x900, 0x97F), (2, 0xE00, 0xE7F), (2, 0x1100, 0x11FF), (3, 0x1680, 0x180F),
    (2, 0x1E00, 0x1FFF), (5, 0x2000, 0x206F), (3, 0x2070, 0x2BFF), (4, 0x3000, 0x30FF), (4, 0x4E00, 0x9FFF),
    (3, 0xAC00, 0xD7A3), (2, 0xE000, 0xE010), (2, 0xF900, 0xFB4F), (2, 0xFE00, 0xFFEF), (3, 0x1F300, 0x1FAFF),
    (1, 0x10000, 0x1F2FF), (1, 0x20000, 0x2FA1D), (1, 0xE0001, 0xE01EF), (1, 0x10FFF0, 0x10FFFF),
]  # fmt: skip
SPACES = [" ", " ", "  ", "\n", "\r\n", "\t", "\n\n", " \n", "\n ", "   ", "\u00a0", "\u3000", "\u180e", "\x85", "\u2028"]  # fmt: skip
FRAGMENTS = ["'s", "'T", "'Re", "'ll", "'VE", "'ſ", "'", "''", "▁", "Ġ", "<0x0A>", "<", "-", "--", "#", "##", "~", ".", "...", "0", "42", "12345", "word", "ﬁn", "fin"]  # fmt: skip


def training_lines() -> list[str]:
    prose = (ROOT / "LICENSE").read_text().splitlines()
    return prose + SENTENCES * 8


# Combining marks and modifier letters of Unicode 14; the reference library normalises by Unicode 13.
NEWER_THAN_THE_REFERENCE = [0x1715, *range(0x10780, 0x107BB), *range(0x10F82, 0x10F86), *range(0x11070, 0x11076)]


def random_character(rng: random.Random) -> str:
    """An assigned character, no surrogate."""
    while True:
        _, first, last = rng.choices(RANGES, [weight for weight, _, _ in RANGES])[0]
        code_point = rng.randint(first, last)
        unassigned = unicodedata.category(chr(code_point)) in ("Cn", "Cs")
        if not unassigned and code_point not in NEWER_THAN_THE_REFERENCE:
            return chr(code_point)


def random_words(rng: random.Random, words: list[str], added: list[str]) -> str:
    parts = []
    for _ in range(rng.randint(1, 14)):
        kind = rng.random()
        if kind < 0.5:
            word = rng.choice(words)
            parts.append(rng.choice([word, word, word.upper(), word.capitalize(), word[: rng.randint(0, len(word))]]))
        elif kind < 0.7:
            parts.append(rng.choice(FRAGMENTS))
        elif kind < 0.85:
            parts.append("".join(random_character(rng) for _ in range(rng.randint(1, 4))))
        elif added:
            parts.append(rng.choice(added))
        if rng.random() < 0.7:
            parts.append(rng.choice(SPACES))
    return "".join(parts)


def hard_texts(seed: int, count: int, added: list[str]) -> Iterator[str]:
    """Fixed awkward texts, then random ones up to `count`: soups of characters, words, runs, cut sentences."""
    rng = random.Random(seed)
    fixed = ["", " ", "  ", "\n", "a", "\x00", "".join(map(chr, range(0x80, 0x100))), *SENTENCES]
    fixed += [character * 300 for character in (" ", "\n", "a", "A", "'", "1", "é", "中", "🙂", "\u0301")]
    around = ["{}", " {} ", "x{}y", "x {} y", "  {}  ", "{0}{0}", "é{}", "{}\n", "\n{}user", "{}1"]
    fixed += [frame.format(text) for frame in around for text in added]
    yield from fixed
    words = " ".join(training_lines()).split()
    for _ in range(count - len(fixed)):
        kind = rng.random()
        if kind < 0.35:
            yield "".join(random_character(rng) for _ in range(rng.randint(1, 40)))
        elif kind < 0.85:
            yield random_words(rng, words, added)
        elif kind < 0.93:
            sentence = rng.choice(SENTENCES)
            start = rng.randrange(len(sentence))
            yield sentence[start : start + rng.randint(1, 60)]
        else:
            yield "".join(random_character(rng) * rng.randint(1, 70) for _ in range(rng.randint(1, 4)))
