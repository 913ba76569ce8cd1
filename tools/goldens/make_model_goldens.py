#!/usr/bin/env python3
"""Writes tests/golden/model_fp32.safetensors: losses and gradients of tiny models as Hugging Face
transformers computes them in fp32.

All variants have the same weights:

- "untied": a separate output head; "tied": the embedding is also the head;
- "llama3": untied, with Llama 3's scaling of the rotary frequencies;
- "mistral": a sliding window of 7 tokens;
- "qwen2": biases of q, k and v; "qwen3": norms of the heads of q and k;
- "padding" and "tied_padding": untied and tied with a pad_token_id. Their file is model_padding.safetensors,
  which stores only the embedding's gradient;
- "z_loss": untied, trained on the loss plus Z_WEIGHT times the mean square of the logits' log-partition.
  model_z_loss.safetensors stores this mean, and the gradients of the head and the embedding.

Each other variant stores the loss of every token, the mean over the counted tokens, and the gradient of this
mean with respect to every parameter. Targets below zero are not counted.

    python tools/goldens/make_model_goldens.py tests/golden
"""

import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

VOCAB, SEQUENCES, LENGTH = 64, 2, 24
SHAPE = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=256,
    rms_norm_eps=1e-5,
    hidden_act="silu",
    attention_bias=False,
    mlp_bias=False,
)
PLAIN = {"rope_type": "default", "rope_theta": 1e4}
# With a head_dim of 8, the four frequencies are in all three ranges of the rule: unchanged, interpolated,
# divided by the factor.
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 1e4,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
VARIANTS = {
    "untied": ("Llama", False, PLAIN, {}),
    "tied": ("Llama", True, PLAIN, {}),
    "llama3": ("Llama", False, LLAMA3, {}),
    "mistral": ("Mistral", False, PLAIN, {"sliding_window": 7}),
    "qwen2": ("Qwen2", False, PLAIN, {}),
    "qwen3": ("Qwen3", False, PLAIN, {}),
}
Z_WEIGHT = 0.05
# A token that occurs several times in the sequences.
PADDING = 41
PADDED = {
    "padding": ("Llama", False, PLAIN, {"pad_token_id": PADDING}),
    "tied_padding": ("Llama", True, PLAIN, {"pad_token_id": PADDING}),
}


def make_model(family, tied, rope, more):
    config = getattr(transformers, f"{family}Config")(
        **SHAPE, **more, tie_word_embeddings=tied, rope_parameters=rope, attn_implementation="eager",
        dtype="float32"
    )
    return getattr(transformers, f"{family}ForCausalLM")(config).float().train()


def make_weights(generator):
    """Draws weights so large that attention is far from uniform and every gradient is far from zero."""
    weights = {}
    everything = dict(make_model(*VARIANTS["untied"]).named_parameters())
    for family in ("qwen2", "qwen3"):
        everything |= {k: p for k, p in make_model(*VARIANTS[family]).named_parameters()
                       if k not in everything}
    for name, p in everything.items():
        noise = torch.randn(p.shape, generator=generator)
        if "norm" in name:
            weights[name] = 1.0 + 0.2 * noise
        elif "embed" in name:
            weights[name] = 0.5 * noise
        elif "bias" in name:
            weights[name] = 0.3 * noise
        else:
            weights[name] = 1.5 * p.shape[1] ** -0.5 * noise
    return weights


def run(family, tied, rope, more, weights, tokens, targets, z_weight=0.0):
    model = make_model(family, tied, rope, more)
    wanted = {k: weights[k] for k, _ in model.named_parameters()}
    missing, unexpected = model.load_state_dict(wanted, strict=False)
    assert not unexpected and missing in ([], ["lm_head.weight"] if tied else []), (missing, unexpected)
    logits = model(input_ids=tokens, use_cache=False).logits.reshape(-1, VOCAB)
    flat = targets.reshape(-1)
    losses = torch.nn.functional.cross_entropy(logits, flat, ignore_index=-1, reduction="none")
    loss = losses.sum() / (flat >= 0).sum()
    z = torch.logsumexp(logits[flat >= 0], dim=-1).square().mean()
    (loss + z_weight * z if z_weight else loss).backward()
    out = {"loss": loss.detach().reshape(1), "losses": losses.detach(), "z": z.detach().reshape(1)}
    out |= {f"grad/{name}": p.grad for name, p in model.named_parameters()}
    return out


def main(folder):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    generator = torch.Generator().manual_seed(7)
    weights = make_weights(generator)
    tokens = torch.randint(0, VOCAB, (SEQUENCES, LENGTH), generator=generator)
    targets = torch.randint(0, VOCAB, (SEQUENCES, LENGTH), generator=generator)
    targets[0, 5] = targets[0, LENGTH - 1] = targets[1, 0] = -1
    tensors = {f"weight/{k}": v for k, v in weights.items()}
    tensors |= {"tokens": tokens.reshape(-1).int(), "targets": targets.reshape(-1).int()}
    for name, variant in VARIANTS.items():
        found = run(*variant, weights, tokens, targets)
        tensors |= {f"{name}/{key}": value for key, value in found.items() if key != "z"}
        print(f"{name}: loss {found['loss'].item():.7f}")
    write(folder / "model_fp32.safetensors", tensors)

    assert (tokens == PADDING).sum() > 1
    padded = {}
    for name, variant in PADDED.items():
        found = run(*variant, weights, tokens, targets)
        padded[f"{name}/grad/model.embed_tokens.weight"] = found["grad/model.embed_tokens.weight"]
    write(folder / "model_padding.safetensors", padded)

    found = run(*VARIANTS["untied"], weights, tokens, targets, Z_WEIGHT)
    kept = ("z", "grad/lm_head.weight", "grad/model.embed_tokens.weight")
    write(folder / "model_z_loss.safetensors", {key: found[key] for key in kept})


def write(path, tensors):
    # The metadata have only one entry: several entries would be written in varying order, and the file must
    # be reproducible.
    made_with = f"torch {torch.__version__}, transformers {transformers.__version__}"
    save_file({k: v.contiguous() for k, v in tensors.items()}, path, metadata={"made_with": made_with})
    print(f"{path}: {len(tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(pathlib.Path(sys.argv[1]))
