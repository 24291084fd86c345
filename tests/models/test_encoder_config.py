"""Reading encoder configs: what published files say, in both spellings, and what is refused by name."""

import json

import pytest

from ragjax.models.architectures import parse_config
from ragjax.models.encoder_config import BertConfig, DebertaConfig
from ragjax.testing import raw_config, tiny_encoder_config

FAMILIES = ("bert", "roberta", "xlm-roberta", "deberta-v2")
BERT, ROBERTA, DEBERTA = (raw_config(tiny_encoder_config(f, "sequence")) for f in ("bert", "roberta", "deberta-v2"))

PUBLISHED = {
    "sentence-transformers__all-MiniLM-L6-v2": (BertConfig, None, 0),
    "facebook__contriever-msmarco": (BertConfig, None, 0),
    "cross-encoder__ms-marco-MiniLM-L-6-v2": (BertConfig, "sequence", 1),
    "variant_v5_save__cross-encoder__ms-marco-MiniLM-L-6-v2": (BertConfig, "sequence", 1),
    "variant_st5_save__cross-encoder__ms-marco-MiniLM-L-6-v2": (BertConfig, "sequence", 1),
    "microsoft__llmlingua-2-bert-base-multilingual-cased-meetingbank": (BertConfig, "token", 2),
    "microsoft__llmlingua-2-xlm-roberta-large-meetingbank": (BertConfig, "token", 2),
    "BAAI__bge-reranker-base": (BertConfig, "sequence", 1),
    "variant_v5_save__BAAI__bge-reranker-base": (BertConfig, "sequence", 1),
    "microsoft__deberta-v3-small": (DebertaConfig, None, 0),
    "microsoft__deberta-v3-base": (DebertaConfig, None, 0),
    "cross-encoder__nli-deberta-v3-base": (DebertaConfig, "sequence", 3),
    "MoritzLaurer__DeBERTa-v3-base-mnli-fever-anli": (DebertaConfig, "sequence", 3),
}


def published(shared, name):
    return json.loads((shared / "models" / "configs" / f"{name}.json").read_text())


@pytest.mark.shared
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_parses(shared, name):
    cfg = parse_config(published(shared, name))
    assert (type(cfg), cfg.head, len(cfg.labels)) == PUBLISHED[name]
    assert cfg.max_positions == 512
    assert cfg.head_dim * cfg.num_heads == cfg.hidden_size
    if cfg.family == "xlm-roberta":
        assert (cfg.position_offset, cfg.position_rows) == (2, 514)


@pytest.mark.shared
def test_two_spellings_of_one_model_are_one_config(shared):
    plain = published(shared, "cross-encoder__ms-marco-MiniLM-L-6-v2")
    for variant in ("v5_save", "st5_save"):
        name = f"variant_{variant}__cross-encoder__ms-marco-MiniLM-L-6-v2"
        assert parse_config(published(shared, name)) == parse_config(plain)
    name = "BAAI__bge-reranker-base"
    assert parse_config(published(shared, name)) == parse_config(published(shared, f"variant_v5_save__{name}"))


@pytest.mark.shared
def test_labels_come_in_the_order_of_their_ids(shared):
    """Two models of natural-language inference number their labels differently."""
    one = parse_config(published(shared, "cross-encoder__nli-deberta-v3-base"))
    two = parse_config(published(shared, "MoritzLaurer__DeBERTa-v3-base-mnli-fever-anli"))
    assert one.labels == ("contradiction", "entailment", "neutral")
    assert two.labels == ("entailment", "neutral", "contradiction")


@pytest.mark.shared
@pytest.mark.parametrize("name", ["answerdotai__ModernBERT-base", "variant_resave_4.56__answerdotai__ModernBERT-base"])
def test_modernbert_is_refused_by_name(shared, name):
    with pytest.raises(ValueError, match="model_type 'modernbert' is not supported"):
        parse_config(published(shared, name))


@pytest.mark.parametrize("head", [None, "sequence", "token"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_written_config_parses_to_itself(family, head):
    cfg = tiny_encoder_config(family, head)
    assert parse_config(json.loads(json.dumps(raw_config(cfg)))) == cfg


@pytest.mark.parametrize(
    ("architecture", "head"),
    [
        ("BertModel", None),
        ("Contriever", None),
        ("BertForMaskedLM", None),
        ("BertForPreTraining", None),
        ("BertForSequenceClassification", "sequence"),
        ("BertForTokenClassification", "token"),
    ],
)
def test_architectures_say_which_head(architecture, head):
    assert parse_config(BERT | {"architectures": [architecture]}).head == head


def test_without_architectures_there_is_no_head():
    cfg = parse_config({key: value for key, value in DEBERTA.items() if key != "architectures"})
    assert (cfg.head, cfg.labels) == (None, ())


@pytest.mark.parametrize("spelling", ["p2c|c2p", "c2p | p2c", ["p2c", "c2p"]])
def test_kinds_of_attention_are_a_string_or_a_list(spelling):
    assert parse_config(DEBERTA | {"pos_att_type": spelling}) == parse_config(DEBERTA)
    assert not parse_config(DEBERTA | {"pos_att_type": "c2p"}).position_to_content


def test_absent_labels_are_two():
    raw = {key: value for key, value in BERT.items() if key != "id2label"}
    assert parse_config(raw).labels == ("LABEL_0", "LABEL_1")
    assert len(parse_config(raw | {"num_labels": 5}).labels) == 5
    assert len(parse_config(raw | {"_num_labels": 3}).labels) == 3


@pytest.mark.parametrize("key", ["num_labels", "_num_labels"])
def test_a_number_of_labels_says_nothing_without_a_head(key):
    bare = BERT | {"architectures": ["BertModel"]}
    assert parse_config(bare | {key: 7}) == parse_config(bare)
    assert parse_config(BERT | {key: 3}) == parse_config(BERT)
    with pytest.raises(ValueError, match="not a name for each id from 0 to 3"):
        parse_config(BERT | {key: 4})


@pytest.mark.parametrize(
    ("raw", "change", "words"),
    [
        (BERT, {"architectures": ["BertForQuestionAnswering"]}, "architectures is ['BertForQuestionAnswering']"),
        (BERT, {"architectures": ["RobertaModel"]}, "architectures is ['RobertaModel']"),
        (ROBERTA, {"architectures": ["Contriever"]}, "architectures is ['Contriever']"),
        (BERT, {"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        (BERT, {"is_decoder": True}, "is_decoder is True"),
        (BERT, {"hidden_act": "mish"}, "hidden_act is 'mish'"),
        (BERT, {"num_attention_heads": 5}, "hidden_size 48 is not a multiple of 5 heads"),
        (BERT, {"embedding_size": 24}, "embedding_size is 24; this attribute is not known"),
        (BERT, {"id2label": {"0": "a", "2": "b"}}, "not a name for each id from 0 to 1"),
        (BERT, {"layer_norm_eps": None}, "layer_norm_eps is missing"),
        (ROBERTA, {"pad_token_id": -1}, "pad_token_id is -1"),
        (ROBERTA, {"max_position_embeddings": 2}, "max_position_embeddings is 2, and the first position is 2"),
        (DEBERTA, {"position_biased_input": None}, "position_biased_input is True (or absent)"),
        (DEBERTA, {"relative_attention": None}, "relative_attention is False (or absent)"),
        (DEBERTA, {"type_vocab_size": 2}, "type_vocab_size is 2"),
        (DEBERTA, {"conv_kernel_size": 3}, "conv_kernel_size is 3"),
        (DEBERTA, {"pos_att_type": "c2p|p2p"}, "pos_att_type is 'c2p|p2p'"),
        (DEBERTA, {"pos_att_type": None}, "pos_att_type is []"),
        (DEBERTA, {"norm_rel_ebd": "batch_norm"}, "norm_rel_ebd is 'batch_norm'"),
        (DEBERTA, {"pooler_hidden_size": 96}, "pooler_hidden_size is 96"),
        (DEBERTA, {"attention_head_size": 16}, "attention_head_size is 16"),
        (DEBERTA, {"position_buckets": 0}, "position_buckets is 0"),
    ],
)
def test_what_would_change_the_model_is_refused_by_name(raw, change, words):
    with pytest.raises(ValueError, match="config refused") as error:
        parse_config(raw | change)
    assert words in str(error.value)


def test_a_table_of_distances_defaults_to_the_positions():
    cfg = parse_config(DEBERTA | {"max_relative_positions": -1, "position_buckets": -1})
    assert (cfg.max_distance, cfg.buckets, cfg.span) == (512, None, 512)
    assert parse_config(DEBERTA | {"max_relative_positions": 64, "position_buckets": -1}).span == 64
    assert parse_config(DEBERTA | {"position_buckets": 32}).span == 32
