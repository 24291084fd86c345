"""The README's example, run as it stands, and the commands it shows."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from experiments.sweep import parse_arguments
from ragjax.compress.__main__ import parse_arguments as parse_command

pytestmark = pytest.mark.usefixtures("optimised")

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def run_block(code: str, names: dict, *folders: Path) -> None:
    """Run a block with the names that those before it left, its checkpoints found in `folders`."""
    for folder in folders:
        assert f'"checkpoints/{folder.name}"' in code
        code = code.replace(f"checkpoints/{folder.name}", str(folder))
    exec(compile(code, "README.md", "exec"), names)


def test_the_python_examples_run(smollm2: Path, minilm: Path) -> None:
    first, chosen, families, citations = blocks("python")
    names: dict = {}
    run_block(first, names, smollm2)
    run_block(chosen, names)
    check_texts(names)
    run_block(families, names, minilm)
    extracted = names["out"]
    assert extracted.status == "ok"
    assert extracted.achieved <= extracted.requested
    texts = [document["text"] for document in names["documents"]]
    for unit in extracted.units:
        assert unit.text == "".join(texts[document][start:end] for document, start, end in unit.spans)
    run_block(citations, names)
    assert names["scored"].generated.precision == names["scored"].grounded.precision


def check_texts(names: dict) -> None:
    """What the first two blocks print is what they say."""
    choice = names["best"].choice
    assert names["best"].text == choice.candidates[choice.chosen].text
    assert choice.scores[choice.chosen] == min(choice.scores)
    out, answer = names["out"], names["answer"]
    assert out.status in ("ok", "length")
    assert out.text == "".join(out.trace.pieces).strip() != ""
    assert len(out.trace.tokens) == len(out.trace.log_probs) == len(out.trace.winners) > 0
    assert set(out.trace.winners) <= {"compressor", "target", "both", "neither"}
    assert np.all(out.trace.log_probs <= 0)
    assert answer.answer
    assert answer.score.perplexity > 1


def test_the_commands_parse() -> None:
    (command,) = [block for block in blocks("sh") if "experiments.sweep" in block]
    words = command.replace("\\\n", " ").split()
    assert words[:3] == [".venv/bin/python", "-m", "experiments.sweep"]
    arguments = parse_arguments(words[3:])
    (compress,) = [block for block in blocks("sh") if "ragjax.compress" in block]
    told = parse_command(shlex.split(compress.split("<")[0])[3:])
    assert (told.method, told.budget, told.generator) == ("extract", "0.25", "smollm2-135m-instruct")
    assert (arguments.study, arguments.data, arguments.limit) == ("quickstart", "questions.jsonl", "100")
    assert len(arguments.set) == 3
