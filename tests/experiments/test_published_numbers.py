"""The published numbers, number for number: in the README, and against the reference material's tables."""

import re
import shlex
from pathlib import Path

import pytest

from experiments import published, published_xcompress
from experiments.combine import override
from experiments.config_file import config_path, load_config
from experiments.published import SPLITS
from experiments.sweep import parse_arguments, prepare

README = (Path(published.__file__).parent / "README.md").read_text()
DATASETS = {
    "nq": "nq",
    "tqa": "triviaqa",
    "triviaqa": "triviaqa",
    "hqa": "hotpotqa",
    "hotpotqa": "hotpotqa",
    "wiki": "2wikimultihopqa",
    "2wiki": "2wikimultihopqa",
    "2wikimultihopqa": "2wikimultihopqa",
    "mq": "musique",
    "musique": "musique",
}
ROWS = {
    "gold compression": "gold documents",
    "gold document": "gold documents",
    "raw document": "raw documents",
    "raw": "raw documents",
    "generated": "generated context",
    "generated context": "generated context",
    "no context": "no context",
    "sbert": "Sentence-BERT",
    "recomp-ext": "RECOMP-extractive",
    "recomp-abs": "RECOMP-abstractive",
    "zero-shot": "zero-shot summary",
    "zero-shot summ.": "zero-shot summary",
}
HEADINGS = {
    "Table 1, Llama pair": published.TABLE_1_LLAMA,
    "Table 1, Mixtral pair": published.TABLE_1_MIXTRAL,
    "Table 2": published.TABLE_2,
    "Table 3": published.TABLE_3,
    "Table 5": published.TABLE_5,
    "Table 7": published.TABLE_7,
    "Table 8, Llama": published.TABLE_8_LLAMA,
    "Table 8, Mistral": published.TABLE_8_MISTRAL,
}
BEST_OF_FIVE = {
    f"{reader}, {row}": dict(values)
    for reader in published_xcompress.READERS
    for row, values in published_xcompress.TABLE_2[reader].rows.items()
}
XCOMPRESS = {
    "Table 1, correlation": published_xcompress.TABLE_1.rows,
    "Table 2, the best of five": BEST_OF_FIVE,
    "Table 3, pooling": published_xcompress.TABLE_3.rows,
}


def numbers(cell):
    """The numbers of a cell; a dash is none."""
    return tuple(float(number) for number in re.findall(r"-?\d*\.\d+|-?\d+", cell))


def row_name(text):
    """Our name of a row."""
    plain = re.sub(r"\s*\(.*?\)", "", text).strip()
    return ROWS.get(plain.lower(), plain)


def table_rows(text):
    """The cells of each row of the first markdown table in a text, its heading first."""
    lines = re.search(r"(?:^\|.*\n?)+", text, flags=re.MULTILINE)[0].splitlines()
    cells = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    return [cells[0], *cells[2:]]


def by_dataset(rows):
    """A table with one column a dataset, as `Published` holds it."""
    datasets = [DATASETS[name.lower()] for name in rows[0][1:]]
    table = {}
    for name, *cells in rows[1:]:
        found = zip(datasets, map(numbers, cells), strict=True)
        table[row_name(name)] = {dataset: values for dataset, values in found if values}
    return table


def in_prose(text, datasets, separator):
    """A table written as "row numbers; row numbers", the numbers of a row in the order of the datasets, or named."""
    table = {}
    for row in text.strip().rstrip(".").split(";"):
        first, *others = [cell.strip() for cell in row.strip().split(separator)]
        name, cell = re.fullmatch(r"(.*?)\s+((?:HQA )?[\d./]+)", first, flags=re.DOTALL).groups()
        cells = [cell, *others]
        named = [cell.split() for cell in cells if " " in cell]
        pairs = named or zip(datasets, cells, strict=True)
        table[row_name(name)] = {DATASETS[dataset.lower()]: numbers(cell) for dataset, cell in pairs}
    return table


def plain(table):
    """A table's rows as dicts."""
    return {row: dict(values) for row, values in table.rows.items()}


@pytest.fixture(scope="module")
def reference(shared):
    """The reference material's text on published results, by its headings."""
    text = (shared / "design" / "ANCHORS_RAG.md").read_text()
    parts = re.split(r"^### (14\.\d) .*$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("heading", HEADINGS)
def test_the_readmes_tables_are_the_published_ones(heading):
    _, found = README.split(f"\n#### {heading}\n")
    assert by_dataset(table_rows(found)) == plain(HEADINGS[heading])


def test_every_table_with_numbers_is_in_the_readme():
    tables = [
        value for name, value in vars(published).items() if name.startswith("TABLE_") and any(value.rows.values())
    ]
    assert {id(table) for table in tables} == {id(table) for table in HEADINGS.values()}
    assert README.count("\n#### ") == len(HEADINGS) + len(XCOMPRESS)


@pytest.mark.parametrize("heading", XCOMPRESS)
def test_the_readmes_tables_of_xcompress_are_the_published_ones(heading):
    _, found = README.split(f"\n#### {heading}\n")
    assert by_dataset(table_rows(found)) == {row: dict(values) for row, values in XCOMPRESS[heading].items()}


def test_the_readmes_map_names_each_study_of_xcompress():
    _, text = README.split("\n## xCompress as published\n")
    commands = [re.search(r"`python -m experiments\.sweep (\w+)`", row[1])[1] for row in table_rows(text)[1:]]
    shipped = {path.stem for path in config_path("quickstart").parent.glob("xcompress_*.py")}
    assert set(commands) == shipped - {"xcompress_quickstart", "xcompress_correlation"}


def test_the_readmes_map_names_each_study_and_its_rows():
    _, text = README.split("\n## FaviComp as published\n")
    heading, *rows = table_rows(text)
    assert heading == ["paper", "command", "rows", "published"]
    seen = set()
    for paper, command, run, link in rows:
        arguments = parse_arguments(shlex.split(command.strip("`"))[3:])
        anchor = re.search(r"\(#(.*)\)", link)[1]
        assert anchor in re.sub(r"[^a-z0-9\- \n]", "", README.lower()).replace(" ", "-")
        if paper.startswith("table 5"):
            continue
        config = load_config(config_path(arguments.study))
        points = override(config.points, {})
        assert run == ", ".join(dict.fromkeys(point.title for point in points)), paper
        assert not config.pending, paper
        seen.add(arguments.study)
    assert seen == {path.stem for path in config_path("quickstart").parent.glob("favicomp_*.py")}


def test_every_command_of_the_readme_parses_and_names_points():
    commands = re.findall(r"python -m experiments\.sweep [a-z][^`\n]*", README)
    assert len(commands) >= 14
    for command in commands:
        assert prepare(parse_arguments(shlex.split(command)[3:])).points, command


def test_the_readme_has_the_findings_numbers():
    _, text = README.split("\n### Findings\n")
    for finding in published.TABLE_4.findings:
        assert all(f"{number:g}" in text for number in numbers(finding))


@pytest.mark.shared
def test_favicomps_main_and_rate_tables(reference):
    assert by_dataset(table_rows(reference["14.1"])) == plain(published.TABLE_1_LLAMA)
    assert by_dataset(table_rows(reference["14.2"])) == plain(published.TABLE_1_MIXTRAL)
    _, rates = reference["14.3"].split("Table 3, ")
    assert by_dataset(table_rows(rates)) == plain(published.TABLE_3)
    _, latency = reference["14.3"].split("Table 7, ")
    found = {
        row_name(name): {"nq": (*numbers(seconds), *numbers(cell))} for name, seconds, cell in table_rows(latency)[1:]
    }
    assert found == plain(published.TABLE_7)


@pytest.mark.shared
def test_favicomps_tables_told_in_prose(reference):
    text = reference["14.3"]
    second = re.search(r"Table 2, F1 \(.*?\): (.*)", text)[1]
    assert in_prose(second, SPLITS, ", ") == plain(published.TABLE_2)
    fifth = re.search(r"Table 5 .*?\): (.*)", text)[1]
    trained = {"RECOMP-abs T5-large": "RECOMP-abstractive, T5-large", "FaviComp Mistral-7B-v0.3": "FaviComp"}
    trained["RECOMP-abs Mistral-7B-v0.3"] = "RECOMP-abstractive, Mistral-7B-v0.3 trained"
    fifth = re.sub(r" \(.*?\)", "", fifth)
    found = in_prose(fifth, ("nq", "triviaqa", "hotpotqa"), " | ")
    assert {trained[row]: values for row, values in found.items()} == plain(published.TABLE_5)
    llama, mistral = re.search(r"\* Llama-3-8B: (.*)\n\* Mistral-7B: ((?:.*;\n)*.*)", text).groups()
    assert in_prose(llama, SPLITS, " | ") == plain(published.TABLE_8_LLAMA)
    *most, gold = mistral.split(";")
    found = in_prose(";".join(most), SPLITS, " | ") | in_prose(gold, (), ", ")
    assert found == plain(published.TABLE_8_MISTRAL)


@pytest.mark.shared
def test_favicomps_case_study_and_the_numbers_of_questions(reference):
    case = re.search(r"Table 4 \(.*?\): (.*)", reference["14.3"])[1].rstrip(".")
    found = [number for finding in published.TABLE_4.findings for number in numbers(finding)]
    assert found == list(numbers(case))
    sizes = re.search(r"Table 6, samples: (.*)\.", reference["14.3"])[1]
    assert re.search(r"# The splits .*?: (.*)\.", Path(published.__file__).read_text())[1].split(", ") == [
        size.split()[1] for size in sizes.split(", ")
    ]


@pytest.mark.shared
def test_xcompress_correlations(reference):
    _, *rows = table_rows(reference["14.4"])
    found = {name: {} for name in ("PPL", "LongPPL", "SPS")}
    for dataset, *measures in rows:
        by_score = zip(*(cell.split(" / ") for cell in measures), strict=True)
        for name, values in zip(found, by_score, strict=True):
            found[name][DATASETS[dataset.lower()]] = tuple(map(float, values))
    assert found == plain(published_xcompress.TABLE_1)


@pytest.mark.shared
def test_xcompress_main_table(reference):
    _, text = reference["14.4"].split("Table 2 (EM/F1):\n")
    heading, *rows = table_rows(text)
    found, reader, method = {}, None, None
    for name, *cells in rows:
        if name.endswith(" direct"):
            reader, name = re.sub(r" \(.*\)", "", name.removesuffix(" direct")), "direct"
            found[reader] = [heading]
        method = name if not name.startswith("+") else method
        found[reader].append([name if name == method else f"{method} {name}", *cells])
    assert {reader: by_dataset(rows) for reader, rows in found.items()} == {
        reader: plain(table) for reader, table in published_xcompress.TABLE_2.items()
    }


@pytest.mark.shared
def test_xcompress_pooling_and_entropy(reference):
    pooling = re.search(r"Table 3 pooling \(.*?\): (.*?)\. \(EM", reference["14.4"], flags=re.DOTALL)[1]
    found = {name: {} for name in ("max", "mean", "last")}
    for part in re.split(r";\s+", pooling):
        dataset, cells = part.split(" ", 1)
        for name, cell in zip(found, cells.split(", "), strict=True):
            found[name][DATASETS[dataset.lower()]] = numbers(cell)
    assert found == plain(published_xcompress.TABLE_3)
    entropy = re.search(r"Table 4 answer entropy: (.*?)\. Latency", reference["14.4"])[1]
    found = [
        number for values in plain(published_xcompress.TABLE_4).values() for cell in values.values() for number in cell
    ]
    assert found == [float(number) for number in re.findall(r"\d*\.\d+", entropy)]
