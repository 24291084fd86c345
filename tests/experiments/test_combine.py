"""Points: combinations, canonical forms, overrides, labels, and the words for what is wrong."""

from dataclasses import replace

import pytest

from experiments.combine import chain, label_points, override, prod, zip_
from experiments.experiment import Experiment, parse_assignment, parse_value

BASE = Experiment(compressor="c", target="t", reader="r")


def test_prod_varies_the_last_list_fastest():
    points = prod(BASE, alpha=[0.1, 0.2], top_k=[1, 2])
    assert [(point.alpha, point.top_k) for point in points] == [(0.1, 1), (0.1, 2), (0.2, 1), (0.2, 2)]
    assert prod(BASE) == [BASE]


def test_zip_goes_position_by_position_and_over_groups():
    points = zip_([BASE, replace(BASE, seed=1)], alpha=[0.1, 0.2], top_k=[1, 2])
    assert [(point.seed, point.alpha, point.top_k) for point in points] == [
        (0, 0.1, 1),
        (0, 0.2, 2),
        (1, 0.1, 1),
        (1, 0.2, 2),
    ]
    with pytest.raises(ValueError, match="one length"):
        zip_(BASE, alpha=[0.1], top_k=[1, 2])


def test_chain_keeps_the_order():
    assert chain(BASE, prod(BASE, alpha=[0.1, 0.2])) == [BASE, *prod(BASE, alpha=[0.1, 0.2])]


@pytest.mark.parametrize("combine", [prod, zip_])
def test_an_unknown_field_is_refused_with_the_nearest_name(combine):
    with pytest.raises(ValueError, match="no field 'aplha'; did you mean 'alpha'"):
        combine(BASE, aplha=[0.5])


def test_equal_work_is_one_point():
    assert replace(BASE, method="raw", alpha=0.2, max_new=7).canonical() == replace(BASE, method="raw").canonical()
    assert replace(BASE, alpha=0.0, mix="arithmetic").canonical() == replace(BASE, method="zero_shot").canonical()
    assert replace(BASE, alpha=1.0).canonical() == replace(BASE, method="generated").canonical()
    assert replace(BASE, seed=3, top_p=0.9).canonical() == BASE.canonical()
    assert replace(BASE, seed=3, temperature=1.0).canonical() != replace(BASE, temperature=1.0).canonical()
    assert replace(BASE, seed=3, reader_temperature=1.0).canonical().seed == 3
    assert len(override(prod(BASE, method=["raw", "favicomp"], alpha=[0.3, 0.5]), {})) == 3


def test_canonical_is_its_own_canonical_form():
    for method in ("no_context", "raw", "zero_shot", "generated", "concat", "favicomp"):
        point = replace(BASE, method=method).canonical()
        assert point.canonical() == point


def test_without_a_target_the_reader_measures():
    assert Experiment(method="raw", reader="r").canonical().target == "r"
    with pytest.raises(ValueError, match="'generated' needs target"):
        Experiment(method="generated", reader="r").canonical()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"method": "favicom"}, "did you mean 'favicomp'"),
        ({"alpha": 1.5}, "at most 1"),
        ({"alpha": float("nan")}, "at least 0"),
        ({"batch": 0}, "at least 1"),
        ({"top_p": 0.0}, "lies in"),
        ({"repetition_penalty": 0.0}, "above 0"),
        ({"budget": 1.5}, "fraction"),
        ({"mix": "geometrical"}, "did you mean 'geometric'"),
    ],
)
def test_a_value_out_of_range_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        replace(BASE, **values)


def test_values_are_parsed_by_the_declared_type():
    assert parse_value("alpha", "0.3") == 0.3
    assert parse_value("alpha", "none") is None
    assert (parse_value("budget", "40"), type(parse_value("budget", "40"))) == (40, int)
    assert parse_value("budget", "0.25") == 0.25
    assert parse_value("data", "none") == "none"
    assert parse_assignment("out=results/a=b") == ("out", "results/a=b")
    for text in ("top_k=2.5", "alpha=__import__('os')", "alpha", "top_k=none"):
        with pytest.raises(ValueError, match=r"of type|key=value"):
            parse_assignment(text)


def test_override_sets_every_point_and_drops_equal_ones():
    points = override(prod(BASE, alpha=[0.3, 0.5]), {"alpha": 0.9, "limit": 2})
    assert points == [replace(BASE, alpha=0.9, limit=2).canonical()]
    with pytest.raises(ValueError, match="no point of this study reads alpha"):
        override(prod(BASE, method=["raw"]), {"alpha": 0.9})


def test_points_that_would_make_the_same_rows_are_refused():
    with pytest.raises(ValueError, match="nothing but limit, batch, out"):
        override(prod(BASE, limit=[4, 8]), {})


def test_labels_name_the_method_and_what_varies():
    points = override(chain(prod(BASE, method=["raw"]), prod(BASE, alpha=[0.3, 0.5], budget=[None, 40])), {})
    assert label_points(points) == [
        "raw documents",
        "FaviComp alpha 0.3",
        "FaviComp alpha 0.3 budget 40",
        "FaviComp alpha 0.5",
        "FaviComp alpha 0.5 budget 40",
    ]
