"""ECR: extract what is relevant, cluster what says the same, represent each cluster by one text that cites them all.

Sentences are ranked as for extraction. Best first, each joins the near-duplicate that it is most like, or leads a
cluster of its own. A cluster is one unit, the text of its best sentence or what a language model makes of all of them,
and declares the sids of all its members. Units stand in the order of the documents, as extracted sentences do, so that
the two differ in the clusters alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ragjax.compress.base import Compressed, Unit
from ragjax.compress.packing import pack
from ragjax.compress.prompts import DEFAULT_PROMPTS, PromptSet, number_documents
from ragjax.compress.units import Copying, Ranking, Request, rank, sentence_unit
from ragjax.compress.writing import fit_documents
from ragjax.data.records import Document, Example
from ragjax.decode.engine import Execution, Voice, check_settings, decode_prompts, require_causal
from ragjax.decode.prompt import Prompt, build_prompt, decode_text
from ragjax.decode.state import Decoded
from ragjax.decode.text import raise_failed
from ragjax.retrieve.lexical import lexical_similarities
from ragjax.retrieve.scorers import Scorer
from ragjax.retrieve.sentences import Sentence

_ROUNDING = 1e-5


@dataclass(frozen=True, eq=False, kw_only=True)
class ECR(Copying):
    """One unit for each cluster of near-duplicates, in the order of the clusters' best scores, as many as fit.

    Args:
      tokenizer: the generator's, in which lengths are counted.
      scorer: sees each sentence by itself. Where it offers `similarities` (a bi-encoder's cosines), they tell what is
        alike; else the cosine of word counts does.
      similarity: the least similarity, in (0, 1], of a sentence to the best of its cluster.
      relevant: the least score of a relevant sentence, on the scorer's own scale; None lets the budget decide. An
        example without a relevant sentence has the status "empty".
      writer: the `LanguageModel` that rewrites each cluster of several sentences as one; None represents it by its
        best sentence. A rewritten unit has no span.
      max_new: the most tokens of a rewritten text.
      prompts, prompt_format, batch, strict: of the writer, as in `FaviComp`.
      language: as in `split_sentences`.
    """

    tokenizer: Any
    scorer: Scorer
    similarity: float = 0.8
    relevant: float | None = None
    writer: Any = None
    max_new: int = 64
    prompts: PromptSet = DEFAULT_PROMPTS
    prompt_format: str = "chat"
    language: str = "en"
    batch: int = 8
    strict: bool = False

    def __post_init__(self) -> None:
        check_settings(self.max_new, prompt_format=self.prompt_format)
        if not 0 < self.similarity <= 1:
            raise ValueError(f"similarity lies in (0, 1], got {self.similarity}")
        require_causal("a writer of clusters", self.writer)

    def choose(self, requests: Sequence[Request]) -> list[Compressed]:
        """The best clusters of each example, in the order of the documents."""
        rankings = rank(self.scorer, requests, [[s.text for s in request.sentences] for request in requests])
        clusters = self._clusters(requests, rankings)
        if self.writer is not None:
            clusters = self._rewritten(requests, clusters)
        return [self._compressed(*parts) for parts in zip(requests, clusters, rankings, strict=True)]

    def _clusters(self, requests: Sequence[Request], rankings: Sequence[Ranking]) -> list[list["_Cluster"]]:
        """Each example's clusters, best first."""
        least = -np.inf if self.relevant is None else self.relevant
        ranked = [
            [request.sentences[i] for i in ranking.order if ranking.values[i] >= least]
            for request, ranking in zip(requests, rankings, strict=True)
        ]
        found = []
        for sentences, alike in zip(ranked, self._similarities(ranked), strict=True):
            groups = cluster_greedily(alike, self.similarity)
            found.append([_Cluster(tuple(sentences[i] for i in group)) for group in groups])
        return found

    def _similarities(self, ranked: Sequence[Sequence[Sentence]]) -> list[np.ndarray]:
        texts = [[sentence.text for sentence in sentences] for sentences in ranked]
        compare = getattr(self.scorer, "similarities", None)
        return compare(texts) if compare else [lexical_similarities(own) for own in texts]

    def _rewritten(
        self, requests: Sequence[Request], clusters: Sequence[Sequence["_Cluster"]]
    ) -> list[list["_Cluster"]]:
        """The clusters with the writer's text for each of several sentences, all decoded together."""
        found = [list(own) for own in clusters]
        places = [(e, c) for e, own in enumerate(found) for c, one in enumerate(own) if len(one.members) > 1]
        if not places:
            return found
        built = [self._prompt(requests[e].example, found[e][c]) for e, c in places]
        voice = Voice(self.writer, [prompt for prompt, _ in built])
        result = decode_prompts([voice], max_new=self.max_new, execution=Execution(batch=self.batch))
        rows = [row for (row,) in result.rows]
        if self.strict:
            raise_failed(rows)
        for (e, c), (prompt, dropped), row in zip(places, built, rows, strict=True):
            text = "" if row.failed else decode_text(self.writer.tokenizer, row.tokens).strip()
            found[e][c] = replace(found[e][c], written=text, row=row, unread=dropped, notes=prompt.notes)
        return found

    def _prompt(self, example: Example, cluster: "_Cluster") -> tuple[Prompt, int]:
        """The prompt of the most members that fit the writer, best first; and how many do not."""

        def build(members: Sequence[Document]) -> Prompt:
            data = {"question": example.question, "sentences": number_documents(members)}
            system, user = self.prompts.merge_system, self.prompts.merge_user
            return build_prompt(self.writer.tokenizer, system, user, data, prompt_format=self.prompt_format)

        members = [Document(sentence.text) for sentence in cluster.members]
        return fit_documents(build, example, members, self.writer, self.max_new, "drop_docs")

    def _compressed(self, request: Request, clusters: Sequence["_Cluster"], ranking: Ranking) -> Compressed:
        order = sorted(range(len(clusters)), key=lambda i: clusters[i].place)
        placed = [clusters[i] for i in order]
        kept = [
            placed[i]
            for i in pack(self.tokenizer, [c.text for c in placed], np.argsort(order).tolist(), request.requested)
        ]
        failed = next((c.row.finish_reason for c in clusters if c.row is not None and c.row.failed), None)
        cut = any(c.row is not None and c.row.finish_reason == "length" and c.written for c in kept)
        status = "length" if cut else "ok" if kept else "too_small" if clusters else "empty"
        units = () if failed else [c.unit for c in kept]
        notes = (*ranking.notes, *_notes(clusters))
        decoded = sum(len(c.row.tokens) for c in clusters if c.row is not None) if self.writer is not None else None
        return replace(request.fulfil(units, failed or status, notes), decoded=decoded)


@dataclass(frozen=True, eq=False)
class _Cluster:
    """Near-duplicates, best first.

    Where a writer ran, `written` is its text, `row` what it decoded and `unread` how many members it did not see.
    """

    members: tuple[Sentence, ...]
    written: str = ""
    row: Decoded | None = None
    unread: int = 0
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return self.written or self.members[0].text

    @property
    def place(self) -> tuple[int, int]:
        return self.members[0].document, self.members[0].start

    @property
    def unit(self) -> Unit:
        """The unit that cites all members, in the order of the documents."""
        sids = tuple(s.sid for s in sorted(self.members, key=lambda s: (s.document, s.start)))
        return Unit(self.written, sids) if self.written else replace(sentence_unit(self.members[0]), sources=sids)


def cluster_greedily(similarities: np.ndarray, least: float) -> list[list[int]]:
    """Clusters of n texts that are given best first, each a list of indices, its leader first.

    A text joins the leader that it is most like, the better one of equals, if they are `least` alike or more; else it
    leads a new cluster.

    Args:
      similarities: [n, n].
      least: the least similarity of a member to its leader.
    """
    clusters: list[list[int]] = []
    for text in range(len(similarities)):
        alike = [similarities[text, own[0]] for own in clusters]
        nearest = int(np.argmax(alike)) if alike else 0
        if alike and alike[nearest] >= least - _ROUNDING:
            clusters[nearest].append(text)
        else:
            clusters.append([text])
    return clusters


def _notes(clusters: Sequence[_Cluster]) -> tuple[str, ...]:
    unread = sum(one.unread for one in clusters)
    silent = sum(one.row is not None and not one.row.failed and not one.written for one in clusters)
    counted = (
        (unread, f"{unread} sentences did not fit the writer's prompt"),
        (silent, f"{silent} clusters were rewritten as nothing: their best sentence stands"),
    )
    built = dict.fromkeys(note for one in clusters for note in one.notes)
    return (*(note for count, note in counted if count), *built)
