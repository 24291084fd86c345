"""Every prompt text of the compressors, the reader and the judge, in our own words, versioned.

A template holds `{name}` for each piece of data. To use other words, such as a paper's own, write the fields you want
to change into a TOML file and read it with `read_prompts`.
"""

import dataclasses
import re
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike

from etils import epath

from ragjax.data.records import Document

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class PromptSet:
    """The texts of one study. `version` is stored with every result.

    The compression chat sees the question and the documents, the context chat the question alone (FaviComp, section
    3). CompAct sees a few documents at a time, from the second time on with the summary so far and its evaluation;
    texts of your own have to ask for the verdict that `ragjax.compress.compact.parse_reply` looks for, as ours do.
    ECR's writer sees sentences to merge into one. RECOMP's encoder reads one flat text, in the form that the released
    models were trained on. The reader's templates differ in what comes first; without a context it gets `read_alone`.
    Each of its demonstrations comes before, as `read_shot`. A reader that writes a paragraph is told so by
    `write_system`, one that cites its passages by `cite_system`. The judge is asked, with a yes or no for an answer,
    whether evidence supports a claim.
    """

    version: str = "ragjax-1"
    compress_system: str = (
        "You are an expert at condensing evidence. You are given a question and numbered documents. Write one short "
        "passage that keeps everything in the documents that helps to answer the question, and nothing else. "
        "Do not mention the documents. Reply with the passage only."
    )
    compress_user: str = "Question: {question}\n\nDocuments:\n{documents}\n\nPassage:"
    context_system: str = (
        "You are an expert writer of background passages. You are given a question. Write one short passage with the "
        "facts that help to answer the question. Reply with the passage only."
    )
    context_user: str = "Question: {question}\n\nPassage:"
    compact_system: str = (
        "You are an expert at condensing evidence, a few documents at a time. You are given a question, numbered "
        "documents and perhaps a summary so far. Write one short passage that keeps everything in them that helps to "
        "answer the question, and nothing else. Name people and things instead of using pronouns. After the passage, "
        "judge it: it is complete if it is all that is needed to answer the question, and incomplete if something is "
        "missing."
    )
    compact_user: str = (
        "Question: {question}\n\nDocuments:\n{documents}\n\n"
        "Passage, followed on a new line by the verdict (complete or incomplete) and the reason:"
    )
    compact_next: str = (
        "Question: {question}\n\nSummary so far: {summary}\n\nEvaluation of it: {evaluation}\n\n"
        "Documents:\n{documents}\n\n"
        "Passage, followed on a new line by the verdict (complete or incomplete) and the reason:"
    )
    merge_system: str = (
        "You are an expert at condensing evidence. You are given a question and numbered sentences that say much the "
        "same. Write one sentence that says what they say together, and nothing else. Reply with the sentence only."
    )
    merge_user: str = "Question: {question}\n\nSentences:\n{sentences}\n\nSentence:"
    recomp_source: str = "Question: {question}\nDocument: {documents}\nSummary:"
    read_system: str = (
        "You answer questions. Use the context where it helps. Reply with the answer only, in a few words, "
        "not in a sentence."
    )
    cite_system: str = (
        "You answer questions from numbered passages, in a short paragraph of whole sentences. Use the passages and "
        "nothing else. At the end of every sentence, before its full stop, give the numbers of the passages that it "
        "rests on, each in square brackets, such as [1] or [2][3]; one to three of them. Reply with the paragraph only."
    )
    write_system: str = (
        "You answer questions from numbered passages, in a short paragraph of whole sentences. Use the passages and "
        "nothing else. Reply with the paragraph only."
    )
    read_question_first: str = "Question: {question}\n\nContext: {context}\n\nAnswer:"
    read_context_first: str = "Context: {context}\n\nQuestion: {question}\n\nAnswer:"
    read_alone: str = "Question: {question}\n\nAnswer:"
    read_shot: str = "Question: {question}\n\nAnswer: {answer}\n\n"
    judge_system: str = (
        "You check claims. You are given evidence and a claim. Answer yes if the evidence says everything that the "
        "claim says, and no otherwise. Use the evidence alone. Reply with one word, Yes or No."
    )
    judge_user: str = "Evidence: {premise}\n\nClaim: {hypothesis}\n\nDoes the evidence say so, Yes or No?"


DEFAULT_PROMPTS = PromptSet()


def read_prompts(path: str | PathLike) -> PromptSet:
    """A prompt set from a TOML file; fields it leaves out keep their default, `version` must be given.

    Raises:
      ValueError: for an unknown field, a field that is not a text, a missing version, or a template whose
        placeholders are not those of our own text (a reader's template without {context} would answer without it).
    """
    found = tomllib.loads(epath.Path(path).read_text())
    known = {f.name for f in dataclasses.fields(PromptSet)}
    if unknown := sorted(set(found) - known):
        raise ValueError(f"{path}: unknown prompt field {unknown[0]!r}; there are {sorted(known)}")
    if wrong := sorted(name for name, text in found.items() if not isinstance(text, str)):
        raise ValueError(f"{path}: the prompt field {wrong[0]!r} is not a text")
    if "version" not in found:
        raise ValueError(f"{path}: give the prompts a version of their own")
    for name, text in found.items():
        wanted, there = (set(_PLACEHOLDER.findall(t)) for t in (getattr(DEFAULT_PROMPTS, name), text))
        if wanted != there:
            shown = ", ".join(f"{{{p}}}" for p in sorted(wanted)) or "no placeholder"
            raise ValueError(f"{path}: the prompt {name!r} has to hold {shown}")
    return PromptSet(**found)


def texts_of(prompts: PromptSet, roles: Collection[str]) -> dict[str, str]:
    """The version and the texts of some roles: what the results of a method that uses these roles depend on.

    A role is a field's name up to its first underscore: "compress", "context", "compact", "merge", "recomp", "read",
    "cite", "write" or "judge".
    """
    texts = dataclasses.asdict(prompts)
    return {name: text for name, text in texts.items() if name == "version" or name.split("_")[0] in roles}


def fill_template(template: str, data: Mapping[str, str]) -> str:
    """A template with each `{name}` of `data` put in, once: braces in the data are data."""
    return _PLACEHOLDER.sub(lambda match: data.get(match[1], match[0]), template)


def number_documents(documents: Sequence[Document]) -> str:
    """Documents as a prompt shows them: numbered from 1, the title before the text where there is one."""
    lines = []
    for number, document in enumerate(documents, start=1):
        title = f"{document.title}: " if document.title else ""
        lines.append(f"[{number}] {title}{document.text}")
    return "\n".join(lines)
