"""What a folder of sentence-transformers states: read, or refused by file and field where it is used."""

import pytest

from ragjax.models.embedding_config import LIMITS, MODULES, PROMPTS, EmbeddingConfig, parse_embedding, pooling_files

NAMES = ("Transformer", "Pooling", "Normalize")
OLD = "sentence_transformers.models"
POOLING = "1_Pooling/config.json"


def listed(*names, library=OLD):
    return [
        {"idx": i, "name": str(i), "path": f"{i}_{name}" if i else "", "type": f"{library}.{name}"}
        for i, name in enumerate(names)
    ]


def folder(*names, **changes):
    """The files of a mean-pooled model; `changes` are those of a file by its first letters."""
    files = {MODULES: listed(*(names or NAMES)), POOLING: {"pooling_mode_mean_tokens": True}}
    paths = {"pooling": POOLING, "limits": LIMITS[0], "prompts": PROMPTS}
    return files | {paths[name]: value for name, value in changes.items()}


def test_nothing_is_stated_without_a_list_of_modules():
    stray = folder(limits={"max_seq_length": 7}, pooling={"pooling_mode_cls_token": True})
    del stray[MODULES]
    assert parse_embedding(stray) == parse_embedding({}) == EmbeddingConfig()


def test_all_that_the_published_sentence_encoder_states():
    files = folder(
        pooling={
            "word_embedding_dimension": 384,
            "pooling_mode_cls_token": False,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
        limits={"max_seq_length": 256, "do_lower_case": False},
        prompts={"__version__": {"sentence_transformers": "2.0.0"}},
    )
    assert parse_embedding(files) == EmbeddingConfig(pooling="mean", max_length=256, normalize=True)


def test_all_that_a_newer_file_states():
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling"},
    ]
    task = {
        "transformer_task": "feature-extraction",
        "module_output_name": "token_embeddings",
        "modality_config": {"text": {"method": "forward"}},
    }
    files = folder(
        pooling={"embedding_dimension": 48, "pooling_mode": "cls", "include_prompt": True},
        limits=task,
        prompts={
            "model_type": "SentenceTransformer",
            "prompts": {"query": "find: ", "document": ""},
            "default_prompt_name": None,
            "similarity_fn_name": "dot",
        },
    )
    found = parse_embedding(files | {MODULES: modules})
    assert found == EmbeddingConfig("cls", None, normalize=False, similarity="dot", query_prompt="find: ")


def test_a_default_prompt_stands_where_a_search_has_none_of_its_own():
    prompts = {"plain": "p: ", "passage": "d: "}
    found = parse_embedding(folder(prompts={"prompts": prompts, "default_prompt_name": "plain"}))
    assert (found.prompt, found.query_prompt, found.document_prompt, found.problems) == ("p: ", "p: ", "d: ", ())


@pytest.mark.parametrize(("flag", "pooling"), [("cls_token", "cls"), ("max_tokens", "max")])
def test_each_pooling_by_flag_and_by_name(flag, pooling):
    flags = {"pooling_mode_mean_tokens": False, f"pooling_mode_{flag}": True}
    for config in (flags, {"pooling_mode": pooling}, {"pooling_mode": [pooling]}):
        assert parse_embedding(folder(pooling=config)).pooling == pooling


STRANGE = {"path": "3_Own", "type": "custom_st.Normalize"}
REFUSED = [
    (folder("Transformer", "Pooling", "Dense"), f"{MODULES}: 2_Dense is a {OLD}.Dense, which is not supported"),
    (folder("WordEmbeddings", "Pooling"), f"{MODULES}: the first is a {OLD}.WordEmbeddings"),
    (folder() | {MODULES: [*listed(*NAMES), STRANGE]}, f"{MODULES}: 3_Own is a custom_st.Normalize"),
    (folder("Transformer"), f"{MODULES}: Transformer is not Transformer, Pooling or Transformer, Pooling, Normalize"),
    (
        folder("Transformer", "Normalize", "Pooling") | {"2_Pooling/config.json": {}},
        "Transformer, Normalize, Pooling is not",
    ),
    (
        folder("Dropout", "Transformer", "Pooling") | {"2_Pooling/config.json": {}},
        "the Transformer is in 1_Transformer",
    ),
    (
        folder(pooling={"pooling_mode_mean_tokens": 0, "pooling_mode_lasttoken": 1}),
        f"{POOLING}: pooling_mode is lasttoken",
    ),
    (
        folder(pooling={"pooling_mode": "weightedmean"}),
        f"{POOLING}: pooling_mode is weightedmean; one of cls, mean, max",
    ),
    (folder(pooling={"pooling_mode": "mean_sqrt_len_tokens"}), f"{POOLING}: pooling_mode is mean_sqrt_len_tokens"),
    (folder(pooling={"pooling_mode_cls_token": True}), f"{POOLING}: pooling_mode is mean + cls"),
    (folder(pooling={"pooling_mode_mean_tokens": False}), f"{POOLING}: pooling_mode is none"),
    (folder(limits={"do_lower_case": True}), f"{LIMITS[0]}: do_lower_case is True, which is not supported"),
    (folder(limits={"max_seq_length": "long"}), f"{LIMITS[0]}: max_seq_length is 'long', not a positive whole number"),
    (folder(limits={"transformer_task": "text-generation"}), f"{LIMITS[0]}: transformer_task is 'text-generation'"),
    (folder(limits={"model_args": {"add_pooling_layer": False}}), f"{LIMITS[0]}: model_args is "),
    (
        folder(prompts={"default_prompt_name": "query"}),
        f"{PROMPTS}: default_prompt_name is 'query', which prompts has not",
    ),
    (folder(prompts={"prompts": ["a"]}), f"{PROMPTS}: prompts is ['a'], not a text for each name"),
    (folder(prompts={"truncate_dim": 64}), f"{PROMPTS}: truncate_dim is 64, which is not supported"),
    (folder(prompts={"model_type": "SparseEncoder"}), f"{PROMPTS}: model_type is 'SparseEncoder'"),
    (
        folder(prompts={"similarity_fn_name": "euclidean"}),
        f"{PROMPTS}: similarity_fn_name is 'euclidean'; one of cosine, dot",
    ),
    (
        folder(pooling={"include_prompt": False}, prompts={"prompts": {"query": "q: "}}),
        f"{POOLING}: include_prompt is False, which is not supported",
    ),
]


@pytest.mark.parametrize(("files", "told"), REFUSED)
def test_what_cannot_be_computed_is_told_by_file_and_field(files, told):
    found = parse_embedding(files)
    assert len(found.problems) == 1
    with pytest.raises(ValueError, match="mine cannot embed texts as its files say: ") as raised:
        found.require("mine")
    assert told in str(raised.value)
    argument = found.problems[0][0]
    if argument is None:
        with pytest.raises(ValueError, match="mine"):
            found.require("mine", ("pooling", "max_length", "similarity"))
    else:
        found.require("mine", (argument,))


def test_a_pooling_without_its_config_is_told():
    files = folder()
    del files[POOLING]
    assert parse_embedding(files).problems == (("pooling", f"{POOLING}, which {MODULES} names, is missing"),)


def test_dropout_and_an_unused_prompt_mask_change_nothing():
    plain = parse_embedding(folder("Transformer", "Pooling"))
    assert parse_embedding(folder("Transformer", "Pooling", "Dropout", pooling={"include_prompt": False})) == plain


def test_older_names_of_the_limits_file_are_read():
    assert parse_embedding(folder() | {LIMITS[1]: {"max_seq_length": 128}}).max_length == 128


@pytest.mark.parametrize("stated", [{"modules": []}, [1], [{"path": ""}], 3, [{"path": "../up", "type": "x"}]])
def test_a_list_that_is_none_is_refused(stated):
    for read in (pooling_files, lambda stated: parse_embedding({MODULES: stated})):
        with pytest.raises(ValueError, match="no"):
            read(stated)
