"""The report's page and its table: one HTML file that needs nothing else, and one CSV row a point.

Every text of the data goes through the template's escaping, the inspector's data into a script that no browser runs.
A number is shown in a <data> element that holds it whole, with its point and key.
"""

import base64
import csv
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import jinja2
from jinja2.utils import htmlsafe_json_dumps

from experiments.figures_frontier import Drawn, name_of
from experiments.report_data import (
    IDENTITY,
    TOTAL,
    VIEWS,
    Excluded,
    FrontierStudy,
    Number,
    Point,
    Test,
    grouped,
)
from experiments.report_inspector import VERDICTS, inspector_data
from experiments.table import COUNTS

RARELY = 0.10
"""A share of citing answers below this is warned of: nothing is to be read from the rest's precision."""

MODE_WORDS = {"summary": "summary check", "span": "span check", "recovered": "recovered-source check"}
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Pivot:
    """One number of a dataset's points: a row a method (family, title, point by budget), a column a budget."""

    key: str
    budgets: tuple[float | None, ...]
    rows: tuple[tuple[str, str, Mapping[float | None, Point]], ...]


def make_page(study: FrontierStudy, figures: Mapping[tuple[str, str], Drawn], inspect: int) -> str:
    """The whole page. `figures` by dataset and key; `inspect`: how many questions the inspector was to hold."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("experiments", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "budget": show_budget,
        "p": show_p,
        "name": name_of,
        "png": png_uri,
        "significant": is_significant,
    }
    environment.globals |= {name: globals()[name] for name in ("show", "bounds", "pivot", "grouped")}
    script, _, _ = environment.loader.get_source(environment, "inspector.js")
    style, _, _ = environment.loader.get_source(environment, "style.css")
    return environment.get_template("report.html").render(
        study=study,
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        style=style,
        data=htmlsafe_json_dumps(inspector_data(study)),
        figures=figures,
        inspect=inspect,
        lexical=[judge for judge, _ in study.judges if "no entailment model" in judge],
        counts=count_rows(study.points),
        rarely=[point for point in study.points if cites_rarely(point)],
        used={name: count_used(study, name) for name in study.datasets},
        tests={name: group_tests(study.tests, name) for name in study.datasets},
        verdicts=VERDICTS,
        views=VIEWS,
        modes=MODE_WORDS,
        total=TOTAL,
        level=SIGNIFICANT,
    )


def show(number: Number, key: str) -> str:
    """A number as a table shows it: shares and quality from 0 to 100, tokens and counts as they are."""
    return show_scaled(number.value, scale_of(key))


def bounds(number: Number, key: str) -> str:
    """Its interval, empty where it has none."""
    if number.low is None or number.high is None:
        return ""
    return " to ".join(show_scaled(side, scale_of(key)) for side in (number.low, number.high))


def scale_of(key: str) -> int:
    """The factor that a number is shown at."""
    counted = key.endswith(("tokens", "pairs")) or key.startswith("count_") or key in ("invalid", "left_out")
    return 1 if counted else 100


def show_scaled(value: float | None, scale: int) -> str:
    """A value times its scale: one decimal where it is a share, a count whole; a dash for none."""
    if value is None:
        return "–"
    shown = value * scale
    return f"{shown:,.0f}" if isinstance(shown, int) or abs(shown) >= 1000 else f"{shown:.1f}"


def show_budget(budget: float | None) -> str:
    """A budget in words: a fraction in percent, an integer in tokens."""
    if budget is None:
        return "no budget"
    return f"{budget:,} tokens" if isinstance(budget, int) else f"{100 * budget:g} %"


def show_p(p: float | None) -> str:
    """A p-value with three decimals."""
    if p is None:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def is_significant(test: Test) -> bool:
    """Whether a test's corrected p-value is below 0.05."""
    return test.p_holm is not None and test.p_holm < SIGNIFICANT


def png_uri(image: bytes) -> str:
    """A PNG file as an address that holds it."""
    return "data:image/png;base64," + base64.b64encode(image).decode()


def pivot(points: Sequence[Point], key: str) -> Pivot:
    """A number of one dataset's points, method by budget; methods without any value of it are left out."""
    rows: dict[tuple[str, str], dict[float | None, Point]] = {}
    for family, of in grouped(points):
        for point in of:
            rows.setdefault((family, point.title), {})[point.budget] = point
    rows = {name: of for name, of in rows.items() if any(point.number(key).value is not None for point in of.values())}
    budgets = {budget for of in rows.values() for budget in of if of[budget].number(key).value is not None}
    order = sorted(budgets, key=lambda budget: (budget is not None, -(budget or 0)))
    return Pivot(key, tuple(order), tuple((*name, of) for name, of in rows.items()))


def count_rows(points: Sequence[Point]) -> list[tuple[str, int, int]]:
    """What a reader has to know about the rows: words, how many rows at how many points."""
    found = [(words, [point.counts.get(name, 0) for point in points]) for name, words in COUNTS.items()]
    return [(words, sum(times), sum(map(bool, times))) for words, times in found if any(times)]


def cites_rarely(point: Point) -> bool:
    """Whether fewer than one answer in ten cites."""
    share = point.number("share_citing").value
    return share is not None and share < RARELY


def count_used(study: FrontierStudy, dataset: str) -> tuple[int, list[Excluded]]:
    """The questions of a dataset that every number is over, and those left out."""
    out = [one for one in study.excluded if one.dataset == dataset]
    return study.questions.get(dataset, 0) - len(out), out


def group_tests(tests: Sequence[Test], dataset: str) -> dict[str, dict[str, list[Test]]]:
    """A dataset's tests by what is compared with what, then by number; those against the identity first."""
    groups: dict[str, dict[str, list[Test]]] = {}
    own = [test for test in tests if test.point.dataset == dataset]
    for test in sorted(own, key=lambda test: describe_pair(test) != f"against the {IDENTITY}"):
        groups.setdefault(describe_pair(test), {}).setdefault(test.key, []).append(test)
    return groups


def describe_pair(test: Test) -> str:
    """What a test compares, in words that all tests of its kind share."""
    if test.against is None:
        return f"against {test.against_label}"
    if test.against.family == IDENTITY:
        return f"against the {IDENTITY}"
    same = ", at the same budget" if test.point.budget == test.against.budget else ""
    return f"{test.point.title} against {test.against.title}{same}"


def make_csv(points: Sequence[Point]) -> bytes:
    """One row a point: what it is, then every number of its summary; an interval has four columns. Empty: no value."""
    keys = list(dict.fromkeys(key for point in points for key in point.numbers))
    columns = [column for key in keys for column in columns_of(points, key)]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["dataset", "family", "title", "budget", "label", "settings", *(name for name, _, _ in columns)])
    for point in points:
        place = (point.dataset, point.family, point.title, point.budget, point.label, point.hash)
        writer.writerow([*place, *(astuple(point.number(key))[part] for _, key, part in columns)])
    return file.getvalue().encode("utf-8", "backslashreplace")


def columns_of(points: Sequence[Point], key: str) -> list[tuple[str, str, int]]:
    """The columns of a number: heading, key, and which part of the number."""
    parts = [(key, key, 0), *((f"{key}_{name}", key, n) for n, name in enumerate(("low", "high", "n"), 1))]
    return parts if any(point.number(key).n is not None for point in points) else parts[:1]
