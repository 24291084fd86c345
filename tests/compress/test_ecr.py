"""ECR: clusters of near-duplicates, one unit each that cites all members; representatives and rewritten texts."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from ragjax.compress.base import Budget, Unit, describe
from ragjax.compress.ecr import ECR, cluster_greedily
from ragjax.compress.extract import Extract
from ragjax.compress.prompts import DEFAULT_PROMPTS
from ragjax.data.records import Document, Example
from ragjax.decode.prompt import count_tokens
from ragjax.decode.text import DecodeFailed
from ragjax.retrieve.scorers import BM25
from ragjax.retrieve.sentences import split_sentences
from ragjax.testing import byte_tokenizer
from tests.compress.copying import (
    BUDGETS,
    EXAMPLES,
    Table,
    check_alone_and_together,
    check_budget,
    check_contract,
    compress_in_turn,
    further_fits,
    real_rows,
)
from tests.oracle import bigram_model

BYTES = byte_tokenizer()
PLAIN = ECR(tokenizer=BYTES, scorer=BM25())
CAT, CATS, DOG = "The cat sat on the mat.", "On the mat the cat sat!", "A dog ran."
SCORER = Table({CATS: 3.0, CAT: 2.0, DOG: 1.0})
SHORT = replace(DEFAULT_PROMPTS, version="short", merge_system="", merge_user="Q {question} S {sentences} A")


@given(EXAMPLES, BUDGETS)
def test_contract(example, budget):
    (found,) = PLAIN.compress([example], budget)
    check_contract(BYTES, example, budget, found)
    check_budget(BYTES, found)
    cited = [sid for unit in found.units for sid in unit.sources]
    assert len(cited) == len(set(cited))
    if budget is None:
        assert sorted(cited) == sorted(s.sid for s in split_sentences(example.documents))


@given(st.integers(0, 9), st.integers(0, 2**32 - 1), st.floats(0.1, 1.0))
def test_members_are_like_their_leader_and_leaders_unlike(count, seed, least):
    vectors = np.abs(np.random.default_rng(seed).normal(size=(count, 2)))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    alike = vectors @ vectors.T
    clusters = cluster_greedily(alike, least)
    assert sorted(i for own in clusters for i in own) == list(range(count))
    leaders = [own[0] for own in clusters]
    assert all(own == sorted(own) for own in clusters)
    assert leaders == sorted(leaders)
    assert all(alike[i, own[0]] >= least - 1e-4 for own in clusters for i in own)
    assert all(alike[a, b] < least for a in leaders for b in leaders if a != b)


def test_a_text_joins_the_leader_that_it_is_most_like():
    alike = np.array([[1, 0.5, 0.7, 0.6], [0.5, 1, 0.8, 0.6], [0.7, 0.8, 1, 0], [0.6, 0.6, 0, 1]])
    assert cluster_greedily(alike, 0.6) == [[0, 3], [1, 2]]
    assert cluster_greedily(alike, 0.75) == [[0], [1, 2], [3]]
    assert cluster_greedily(alike, 0.4) == [[0, 1, 2, 3]]
    assert cluster_greedily(np.zeros((0, 0)), 0.5) == []


def test_a_cluster_is_its_best_sentence_and_cites_all():
    found = ECR(tokenizer=BYTES, scorer=SCORER)("?", [f"{CAT} {DOG}", CATS])
    assert found.units == (Unit(DOG, ("0.1",), ((0, 24, 34),)), Unit(CATS, ("0.0", "1.0"), ((1, 0, 23),)))
    assert found.status == "ok"
    strict = ECR(tokenizer=BYTES, scorer=Table({CAT: 1.0}), similarity=1.0)("?", [CAT, CATS, CAT, DOG])
    assert [u.sources for u in strict.units] == [("0.0", "1.0", "2.0"), ("3.0",)]
    apart = ECR(tokenizer=BYTES, scorer=SCORER)("?", [CAT, "The cat sat there all day long."])
    assert [u.sources for u in apart.units] == [("0.0",), ("1.0",)]


def test_clusters_are_taken_in_the_order_of_their_best_scores():
    documents = [f"{CAT} {DOG}", CATS]
    budgets = {23: [CATS], 33: [CATS], 34: [DOG, CATS], 22: [DOG], 9: []}
    for budget, expected in budgets.items():
        found = ECR(tokenizer=BYTES, scorer=SCORER)("?", documents, budget)
        assert [u.text for u in found.units] == expected
        assert found.status == ("ok" if expected else "too_small")


@pytest.mark.parametrize(
    ("relevant", "expected", "status"),
    [(1.0, [DOG, CATS], "ok"), (1.5, [CATS], "ok"), (3.5, [], "empty"), (0.0, [DOG, CATS], "ok")],
)
def test_nothing_relevant_is_empty(relevant, expected, status):
    found = ECR(tokenizer=BYTES, scorer=SCORER, relevant=relevant)("?", [f"{CAT} {DOG}", CATS], 40)
    assert ([u.text for u in found.units], found.status) == (expected, status)
    sources = {1.5: ("0.0", "1.0"), 3.5: None}.get(relevant, ("0.1",))
    assert not found.units or found.units[0].sources == sources


@dataclass(frozen=True)
class Comparing(Table):
    """A scorer that finds texts of the same first letter alike."""

    def similarities(self, texts: Sequence[Sequence[str]]) -> list[np.ndarray]:
        return [np.array([[float(a[0] == b[0]) for b in own] for a in own]) for own in texts]


def test_a_scorer_that_compares_texts_is_asked():
    found = ECR(tokenizer=BYTES, scorer=Comparing({"Ab.": 1.0}))(["?", "?"], [["Aa.", "Ba.", "Ab."], []])
    assert [(u.text, u.sources) for u in found[0].units] == [("Ba.", ("1.0",)), ("Ab.", ("0.0", "2.0"))]
    assert found[1].status == "empty"


def test_G02_G03_tiny_inputs():
    for documents in ([], [""], [" ", "\n"]):
        assert PLAIN("?", documents, 0.5).status == "empty"
    for text in ("hello", "?", "🏔"):
        assert PLAIN("?", [text, text]).units == (Unit(text, ("0.0", "1.0"), ((0, 0, len(text)),)),)
    assert PLAIN("?", ["x" * 3000], 0.5).status == "too_small"


def test_a_result_does_not_depend_on_the_others():
    texts = [CAT, DOG, CATS, "The dog ran away."]
    examples = [Example(f"q{n}", "the dog", documents=tuple(map(Document, texts[: n % 5]))) for n in range(6)]
    check_alone_and_together(PLAIN, examples, Budget(fraction=0.6))


def chain(text: str, ends: bool, start: str = "A") -> np.ndarray:
    """Logits under which `text`, of distinct characters, follows `start`, and then the end or the same again."""
    table = np.zeros((272, 272), np.float32)
    ids = BYTES(start + text, add_special_tokens=False)["input_ids"]
    for before, after in itertools.pairwise(ids):
        table[before, after] = 9.0
    table[ids[-1], BYTES.eos_token_id if ends else ids[1]] = 9.0
    return table


def rewriting(lm, **changes) -> ECR:
    settings = {"max_new": 12, "prompts": SHORT, "prompt_format": "plain", "batch": 4, "similarity": 0.7}
    return ECR(tokenizer=BYTES, scorer=SCORER, writer=lm, **settings, **changes)


def test_a_writer_rewrites_clusters_of_several():
    lm = bigram_model(chain("xyz.", ends=True))
    found = rewriting(lm)("?", [f"{CAT} {DOG}", CATS])
    assert found.units == (Unit(DOG, ("0.1",), ((0, 24, 34),)), Unit("xyz.", ("0.0", "1.0")))
    assert (found.status, found.achieved, found.decoded_tokens) == ("ok", count_tokens(BYTES, f"{DOG}\nxyz."), 4)
    assert found.prompt_tokens == len(f"[1] {DOG}\n[2] xyz.")
    assert rewriting(lm)("?", [CAT, CATS], 4).text == "xyz."  # What was written is what has to fit.
    alone = rewriting(lm)("?", [CAT, DOG])
    assert (alone.text, alone.decoded_tokens) == (f"{CAT}\n{DOG}", 0)
    assert describe(rewriting(lm))["writer"] == lm.fingerprint


def test_a_text_cut_by_the_cap_says_so():
    found = rewriting(bigram_model(chain("xyz", ends=False)))("?", [CAT, CATS])
    assert (found.text, found.status) == ("xyz" * 4, "length")


def test_a_writer_that_says_nothing_leaves_the_best_sentence():
    found = rewriting(bigram_model(chain("", ends=True)))("?", [CAT, CATS])
    assert found.units == (Unit(CATS, ("0.0", "1.0"), ((1, 0, 23),)),)
    assert found.notes == ("1 clusters were rewritten as nothing: their best sentence stands",)
    assert found.status == "ok"


def test_a_writer_that_fails_is_no_text():
    lm = bigram_model(chain("xyz", ends=True))
    broken = replace(lm, params=lm.params.replace(final_norm=lm.params.final_norm * jnp.nan))
    found, other = rewriting(broken)(["?", "?"], [[CAT, CATS], [CAT, DOG]])
    assert (found.units, found.status) == ((), "failed(non-finite at step 0)")
    assert other.status == "ok"
    with pytest.raises(DecodeFailed):
        rewriting(broken, strict=True)("?", [CAT, CATS])


def test_members_that_do_not_fit_the_writer_are_counted():
    lm = bigram_model(chain("xyz.", ends=True))
    small = replace(lm, config=replace(lm.config, max_positions=64))
    found = rewriting(small)("?", [CAT, CATS, CAT])
    assert found.notes == ("2 sentences did not fit the writer's prompt",)
    assert found.units == (Unit("xyz.", ("0.0", "1.0", "2.0")),)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"similarity": 0}, "similarity lies in"),
        ({"similarity": 1.5}, "similarity lies in"),
        ({"max_new": 0}, "max_new"),
        ({"prompt_format": "xml"}, "prompt_format"),
    ],
)
def test_settings_out_of_range_are_refused(bad, message):
    with pytest.raises(ValueError, match=message):
        ECR(tokenizer=BYTES, scorer=SCORER, **bad)


@pytest.mark.shared
def test_real_rows(shared, smollm2):
    """Where no two sentences are alike, ECR is extraction; nowhere would a further cluster fit."""
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    whole = ECR(tokenizer=tokenizer, scorer=BM25())

    def nothing_further(example, found):
        every = whole.compress([example])[0].units
        kept = [every.index(unit) for unit in found.units]
        assert not further_fits(tokenizer, [unit.text for unit in every], kept, found.requested)
        if all(len(unit.sources) == 1 for unit in every):
            extracted = Extract(tokenizer=tokenizer, scorer=BM25()).compress([example], Budget(tokens=found.requested))
            assert extracted[0].units == found.units
        seen.append(any(len(unit.sources) > 1 for unit in found.units))

    seen: list[bool] = []
    statuses = compress_in_turn(whole, real_rows(shared)[:80], nothing_further)
    assert all(own["ok"] == 20 for own in statuses.values())
    assert sum(seen) > 8
