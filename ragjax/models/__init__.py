"""The models: one decoder for every causal family, its config, layers and cache."""
