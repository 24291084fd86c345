"""The points of a finished run, as a figure reads them: settings and summary, from the files in its folder."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from etils import epath

from experiments.evidence import weights_of
from experiments.methods import title_of


@dataclass(frozen=True)
class Result:
    """A point of a run: its settings and its summary."""

    settings: Mapping[str, Any]
    summary: Mapping[str, Any]

    @property
    def dataset(self) -> str:
        """What its questions are."""
        return self.settings.get("dataset") or "questions"

    @property
    def title(self) -> str:
        """The method's name, with the selector where it has one."""
        title, selector = title_of(self.settings), self.settings.get("selector")
        return f"{title} ({selector})" if selector else title

    @property
    def budget(self) -> int | float | None:
        """How long its evidence may be, in tokens or as a fraction; None for any length."""
        return self.settings.get("budget")

    @property
    def alpha(self) -> float | None:
        """The target's weight of the one text that the method decodes; None for any other method."""
        if self.settings.get("writer"):
            return None  # It decodes several texts and chooses.
        alphas = weights_of(self.settings["method"], self.settings.get("alpha"))
        return alphas[0] if len(alphas) == 1 else None


def read_results(folder: str | os.PathLike) -> list[Result]:
    """The points of a folder of results, in the order of the study.

    Raises:
      FileNotFoundError: the folder holds no finished run.
    """
    points, summaries = read_points(folder, "summary.json"), read_summary(folder)["points"]
    return [Result(point["settings"], summaries[point["hash"]]) for point in points if point["hash"] in summaries]


def read_summary(folder: str | os.PathLike) -> dict[str, Any]:
    """The summary of a finished run."""
    return json.loads((epath.Path(folder) / "summary.json").read_bytes())


def read_points(folder: str | os.PathLike, needed: str, what: str = "run") -> list[Mapping[str, Any]]:
    """The points that the manifest of a finished run lists: label, settings and hash of each; `what` names the run.

    Raises:
      FileNotFoundError: there is no manifest, or not the file `needed`.
    """
    folder = epath.Path(folder)
    for name in ("manifest.json", needed):
        if not (folder / name).exists():
            raise FileNotFoundError(f"{folder} holds no finished {what}: there is no {name}")
    return json.loads((folder / "manifest.json").read_bytes())["points"]


def by_dataset(results: Sequence[Result]) -> dict[str, list[Result]]:
    """The results of each dataset, in order."""
    grouped: dict[str, list[Result]] = {}
    for result in results:
        grouped.setdefault(result.dataset, []).append(result)
    return grouped
