"""The README's example, run as it stands, and the commands it shows."""

import re
from pathlib import Path

import numpy as np

from experiments.sweep import parse_arguments

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def test_the_python_example_runs(smollm2: Path) -> None:
    code, chosen = blocks("python")
    assert '"checkpoints/smollm2-135m-instruct"' in code
    names: dict = {}
    exec(compile(code.replace("checkpoints/smollm2-135m-instruct", str(smollm2)), "README.md", "exec"), names)
    exec(compile(chosen, "README.md", "exec"), names)
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
    assert (arguments.study, arguments.data, arguments.limit) == ("quickstart", "questions.jsonl", "100")
    assert len(arguments.set) == 3
