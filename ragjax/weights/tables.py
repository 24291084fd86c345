"""Key tables: for each family, the names that published safetensors files use, and the leaves they fill."""

from ragjax.weights.keymap import KeyTable, Rule

_BLOCK = "model.layers.{i}."

LLAMA = KeyTable(
    rules=(
        Rule("model.embed_tokens.weight", "embedding", "v d -> v d"),
        Rule("model.norm.weight", "final_norm", "d -> d"),
        Rule("lm_head.weight", "head", "v d -> v d"),
        Rule(_BLOCK + "input_layernorm.weight", "layers.{i}.attention_norm", "d -> d"),
        Rule(_BLOCK + "self_attn.q_proj.weight", "layers.{i}.attention.q", "(n h) d -> d n h"),
        Rule(_BLOCK + "self_attn.k_proj.weight", "layers.{i}.attention.k", "(k h) d -> d k h"),
        Rule(_BLOCK + "self_attn.v_proj.weight", "layers.{i}.attention.v", "(k h) d -> d k h"),
        Rule(_BLOCK + "self_attn.o_proj.weight", "layers.{i}.attention.o", "d (n h) -> n h d"),
        Rule(_BLOCK + "self_attn.q_proj.bias", "layers.{i}.attention.q_bias", "(n h) -> n h"),
        Rule(_BLOCK + "self_attn.k_proj.bias", "layers.{i}.attention.k_bias", "(k h) -> k h"),
        Rule(_BLOCK + "self_attn.v_proj.bias", "layers.{i}.attention.v_bias", "(k h) -> k h"),
        Rule(_BLOCK + "self_attn.o_proj.bias", "layers.{i}.attention.o_bias", "d -> d"),
        Rule(_BLOCK + "post_attention_layernorm.weight", "layers.{i}.mlp_norm", "d -> d"),
        Rule(_BLOCK + "mlp.gate_proj.weight", "layers.{i}.mlp.gate", "f d -> d f"),
        Rule(_BLOCK + "mlp.up_proj.weight", "layers.{i}.mlp.up", "f d -> d f"),
        Rule(_BLOCK + "mlp.down_proj.weight", "layers.{i}.mlp.down", "d f -> f d"),
        Rule(_BLOCK + "mlp.gate_proj.bias", "layers.{i}.mlp.gate_bias", "f -> f"),
        Rule(_BLOCK + "mlp.up_proj.bias", "layers.{i}.mlp.up_bias", "f -> f"),
        Rule(_BLOCK + "mlp.down_proj.bias", "layers.{i}.mlp.down_bias", "d -> d"),
    ),
    buffers=(r"(model\.layers\.\d+\.self_attn|model)\.rotary_emb\.inv_freq",),
    copies={"lm_head.weight": "model.embed_tokens.weight"},
)

TABLES = {"llama": LLAMA}
