"""Tokens, vocabulary and ids."""

from __future__ import annotations

import numpy as np

from fedskew.data.text import build_vocabulary, encode, tokenise


def test_tokenise_lowers_hides_names_and_drops_punctuation() -> None:
    assert tokenise("@Bob_1 LOVES it!!! www.a.b/c?d It’s 2 good_day") == [
        "<user>",
        "loves",
        "it",
        "<url>",
        "it's",
        "2",
        "good",
        "day",
    ]
    assert tokenise("...") == []


def test_vocabulary_is_the_most_frequent_words_with_ties_in_alphabetical_order() -> None:
    words = [["b", "b", "a"], ["c", "a", "d"]]
    assert build_vocabulary(words, 5) == {"a": 2, "b": 3, "c": 4}
    assert build_vocabulary(words) == {"a": 2, "b": 3, "c": 4, "d": 5}
    assert build_vocabulary(words, 2) == {}


def test_encode_cuts_pads_and_marks_unknown_words() -> None:
    ids = encode([["a", "b", "a", "a"], ["z"], []], {"a": 2, "b": 3}, 3)
    assert ids.tolist() == [[2, 3, 2], [1, 0, 0], [1, 0, 0]]
    assert ids.dtype == np.int32
    assert encode([], {}, 3).shape == (0, 3)
