"""From a reader's raw reply and the golds to the scores of one question (Acc, EM, token F1, Hits).

Every score lies in [0, 1] and is the best over the golds, taken for each metric apart. Golds that normalise to nothing
match everything, so they are dropped and counted; a question without a usable gold has no score (None), never 0.

=================  =====================================================================================
`em`               the normalised texts are equal
`f1`               harmonic mean of token precision and recall; never below `em`
`acc`              the published accuracy: a normalised gold is a substring of the normalised prediction.
                   "us" is in "russia", and a long reply that lists everything wins: see `prediction_words`
`acc_tokens`       the gold's tokens occur side by side in the prediction's: "us" is not in "russia", but
                   "king" is still in "Martin Luther King"
=================  =====================================================================================
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ragjax.data.golds import parse_golds
from ragjax.data.records import Document
from ragjax.evals.normalize import NORMALIZERS, Normalizer, normalizer_for, squad

METRICS = ("acc", "acc_tokens", "em", "f1")

# HotpotQA's closed answers: partial overlap with one of them is no answer.
_CLOSED = frozenset({"yes", "no", "noanswer"})
# Datasets whose official script has that rule.
_CLOSED_DATASETS = frozenset({"hotpotqa", "hotpot_qa", "2wikimultihopqa"})

_LABEL = re.compile(r"\A\**(?:(?:final|short)\s+)?answer\s*:\s*\**\s*", re.IGNORECASE)
_EMPHASIS = re.compile(r"(\*\*|\*|__|_|`)((?:(?!\1).)+)\1", re.DOTALL)
_NEXT_QUESTION = re.compile(r"\n\s*\n|Question:")


@dataclass(frozen=True)
class Rules:
    """How answers are compared; recorded with every score.

    `yes_no`: token F1 is 0 where prediction or gold is yes, no or noanswer and they differ (HotpotQA). `credit`:
    "paper" is the substring rule alone, "code" also wants F1 > 0, as FaviComp's released code does.
    `abstentions`: replies which are right where a question has no gold; without them such a question is unscored.
    """

    normalizer: str = "squad"
    yes_no: bool = True
    credit: str = "paper"
    abstentions: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.normalizer not in NORMALIZERS:
            raise ValueError(f"unknown normalizer {self.normalizer!r}; known: {', '.join(NORMALIZERS)}")
        if self.credit not in ("paper", "code"):
            raise ValueError(f"credit is 'paper' or 'code', got {self.credit!r}")


def official_rules(dataset: str) -> Rules:
    """The rules of the dataset's own script: its normaliser, and the yes/no rule where it has one.

    Raises ValueError for a dataset without an official normaliser here.
    """
    return Rules(normalizer_for(dataset), yes_no=dataset in _CLOSED_DATASETS)


def usable_golds(golds: Any, normalize: Normalizer = squad) -> tuple[tuple[str, ...], int]:
    """The distinct normalised golds and the number dropped because they normalise to nothing.

    `golds` has any form that `ragjax.data.parse_golds` reads: a str is one gold, never its characters.
    """
    normalised = [normalize(gold) for gold in parse_golds(golds)]
    return tuple(dict.fromkeys(gold for gold in normalised if gold)), normalised.count("")


def exact_match(prediction: str, golds: Any, normalize: Normalizer = squad) -> float | None:
    """1.0 where the normalised prediction equals a gold; None without a usable gold."""
    return _best(lambda p, g: float(p == g), prediction, golds, normalize)


def token_f1(prediction: str, golds: Any, normalize: Normalizer = squad, *, yes_no: bool = True) -> float | None:
    """Best token F1 over the golds, with HotpotQA's rule unless `yes_no` is False; None without a usable gold."""
    return _best(lambda p, g: _pair_f1(p, g, yes_no), prediction, golds, normalize)


def contains_substring(
    prediction: str, golds: Any, normalize: Normalizer = squad, *, credit: str = "paper", yes_no: bool = True
) -> float | None:
    """The published Acc: 1.0 where a normalised gold is a substring of the normalised prediction.

    With `credit="code"` the gold must also have token F1 > 0 (under `yes_no`). None without a usable gold.
    """

    def pair(p: str, g: str) -> float:
        return float(g in p and (credit == "paper" or _pair_f1(p, g, yes_no) > 0))

    return _best(pair, prediction, golds, normalize)


def contains_tokens(prediction: str, golds: Any, normalize: Normalizer = squad) -> float | None:
    """1.0 where a gold's tokens occur side by side among the prediction's; None without a usable gold."""
    return _best(lambda p, g: float(f" {g} " in f" {p} "), prediction, golds, normalize)


def hits(documents: Iterable[Document], golds: Any, normalize: Normalizer = squad) -> float | None:
    """1.0 where Acc's rule finds a gold in the title or the text of one of the documents, as the prompts show both.

    For a yes/no question it says only whether that word occurs. None without a usable gold; 0.0 without documents.
    """
    parts = [part for document in documents for part in (document.title, document.text)]
    if not usable_golds(golds, normalize)[0]:
        return None
    return max((contains_substring(part, golds, normalize) for part in parts), default=0.0)


def parse_answer(raw: str) -> str:
    """The answer in a reply: without thoughts, a leading "Answer:", emphasis around it, and what follows it.

    Thoughts end at the last `</think>`; thoughts that the token limit cut hold no answer. The answer ends at the
    first blank line or at "Question:" (as in FaviComp's code), so an answer of two lines keeps both.
    """
    text = raw.rsplit("</think>", 1)[-1].split("<think>", 1)[0].strip()
    text = _LABEL.sub("", _without_emphasis(text))
    return _without_emphasis(_NEXT_QUESTION.split(text, maxsplit=1)[0].strip())


def score_prediction(raw: str, golds: Any, rules: Rules | None = None) -> dict[str, Any]:
    """All scores of one reply, ready for a row of results.

    Returns `raw`, `prediction` (the parsed answer), `prediction_words`, the four `METRICS` (each in [0, 1], or None
    for an unscored question), `unscored` (None, "no gold" or "golds normalise to nothing"), `dropped_golds` and
    `flags` ("both yes and no", "abstained").
    """
    rules = rules or Rules()
    normalize = NORMALIZERS[rules.normalizer]
    golds, prediction = parse_golds(golds), parse_answer(raw)
    usable, dropped = usable_golds(golds, normalize)
    abstained = normalize(prediction) in {normalize(reply) for reply in rules.abstentions}
    if not golds and rules.abstentions:
        scores, unscored = dict.fromkeys(METRICS, float(abstained)), None
    else:
        scores = _scores(prediction, golds, rules, normalize)
        unscored = None if usable else "golds normalise to nothing" if golds else "no gold"
    both = not {"yes", "no"}.isdisjoint(usable) and {"yes", "no"} <= set(normalize(prediction).split())
    flags = [name for name, on in (("both yes and no", both), ("abstained", abstained)) if on]
    return {
        "raw": raw,
        "prediction": prediction,
        "prediction_words": len(prediction.split()),
        **scores,
        "unscored": unscored,
        "dropped_golds": dropped,
        "flags": flags,
    }


def _scores(prediction: str, golds: Sequence[str], rules: Rules, normalize: Normalizer) -> dict[str, float | None]:
    scores = {
        "acc": contains_substring(prediction, golds, normalize, credit=rules.credit, yes_no=rules.yes_no),
        "acc_tokens": contains_tokens(prediction, golds, normalize),
        "em": exact_match(prediction, golds, normalize),
        "f1": token_f1(prediction, golds, normalize, yes_no=rules.yes_no),
    }
    if scores["em"] is not None and scores["em"] > scores["f1"]:
        raise AssertionError(f"EM {scores['em']} exceeds F1 {scores['f1']} for {prediction!r} against {golds!r}")
    return scores


def _best(pair: Callable[[str, str], float], prediction: str, golds: Any, normalize: Normalizer) -> float | None:
    """The best of `pair(prediction, gold)` over the usable golds, both normalised; None where there are none."""
    usable, _ = usable_golds(golds, normalize)
    normalised = normalize(prediction)
    return max((pair(normalised, gold) for gold in usable), default=None)


def _pair_f1(prediction: str, gold: str, yes_no: bool) -> float:
    if yes_no and prediction != gold and not _CLOSED.isdisjoint((prediction, gold)):
        return 0.0
    predicted, wanted = prediction.split(), gold.split()
    common = sum((Counter(predicted) & Counter(wanted)).values())
    return 2 * common / (len(predicted) + len(wanted)) if common else 0.0


def _without_emphasis(text: str) -> str:
    match = _EMPHASIS.fullmatch(text)
    return match[2].strip() if match else text
