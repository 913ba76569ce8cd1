#!/usr/bin/env python3
"""Writes tests/golden/families/NAME: a tiny random model of each family as Hugging Face transformers saves it
(config.json, model.safetensors in bf16), and golden.safetensors: the loss of each token, and the gradient of
the mean loss with respect to every parameter, computed by transformers in fp32. Targets below zero are not
counted.

    python tools/goldens/make_family_goldens.py tests/golden/families [NAME...]
"""

import json
import pathlib
import sys

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

VOCAB, SEQUENCES, LENGTH = 32, 2, 24
SHAPE = dict(
    vocab_size=VOCAB,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=None,
    tie_word_embeddings=False,
)
YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
    "beta_fast": 4.0,
    "beta_slow": 1.0,
}
LEFT_OUT = object()
NOT_OF_GPT2 = (
    "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim "
    "rms_norm_eps max_position_embeddings"
).split()
GPT2 = dict(
    n_embd=16, n_layer=2, n_head=4, n_positions=24, tie_word_embeddings=True, resid_pdrop=0.0, embd_pdrop=0.0,
    attn_pdrop=0.0
)
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.5}
# 24 positions exceed the original length of 16, so the long factors apply. 6 of the 8 columns of a head are
# rotated.
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 1e4,
    "original_max_position_embeddings": 16,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.25, 1.5],
    "long_factor": [1.0, 2.5, 6.0],
}
GLM = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
DEEPSEEK = {
    "num_key_value_heads": 4,
    "head_dim": LEFT_OUT,
    "kv_lora_rank": 10,
    "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "n_shared_experts": 2,
    "routed_scaling_factor": 2.5,
    "first_k_dense_replace": 1,
}
# Families: name, prefix of transformers' classes, and the values that differ from SHAPE.
FAMILIES = {
    "yarn": ("Llama", {"rope_parameters": YARN}),
    "linear": ("Llama", {"rope_parameters": LINEAR}),
    "longrope": (
        "Phi3",
        {
            "rope_parameters": LONGROPE,
            "original_max_position_embeddings": 16,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
        },
    ),
    "granite": (
        "Granite",
        {
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.4,
            "logits_scaling": 0.6,
            "tie_word_embeddings": True,
        },
    ),
    "glm": ("Glm", {"rope_parameters": GLM, "attention_bias": True}),
    "glm4": ("Glm4", {"rope_parameters": GLM, "attention_bias": False}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None}),
    "qwen3_moe": (
        "Qwen3Moe",
        {
            "num_experts": 6,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 12,
            "decoder_sparse_step": 2,
            "norm_topk_prob": False,
            "mlp_only_layers": [],
        },
    ),
    "dots1": (
        "Dots1",
        {
            "n_routed_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 8,
            "n_shared_experts": 2,
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
            "first_k_dense_replace": 1,
            "sliding_window": None,
        },
    ),
    # Values are narrower than keys. yarn scales cosine and sine by one factor, and attention by another.
    "deepseek_v3": (
        "DeepseekV3",
        DEEPSEEK
        | {
            "q_lora_rank": 12,
            "v_head_dim": 5,
            "n_group": 4,
            "topk_group": 2,
            "norm_topk_prob": True,
            "rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 1.3},
        },
    ),
    "deepseek_v3_direct": (
        "DeepseekV3",
        DEEPSEEK | {"q_lora_rank": None, "v_head_dim": 10, "n_group": 1, "topk_group": 1,
                    "norm_topk_prob": False},
    ),
    # A group's score is the score of its best expert. A token chooses more experts than groups, so other
    # rules would choose other experts: without groups, or with the sum of a group's two best experts.
    "deepseek_v2": (
        "DeepseekV2",
        DEEPSEEK
        | {
            "q_lora_rank": None,
            "v_head_dim": 8,
            "topk_method": "group_limited_greedy",
            "num_experts_per_tok": 3,
            "n_group": 4,
            "topk_group": 2,
        },
    ),
    "olmo2": ("Olmo2", {}),
    # Llama with other tensor names: see `as_baichuan`.
    "baichuan": ("Llama", {"num_key_value_heads": 4, "head_dim": 4}),
    "gemma2": (
        "Gemma2",
        {
            "query_pre_attn_scalar": 12,
            "sliding_window": 7,
            "attn_logit_softcapping": 1.5,
            "final_logit_softcapping": 2.0,
            "tie_word_embeddings": True,
        },
    ),
    # The layer with full attention has separate frequencies.
    "gemma3": (
        "Gemma3",
        {
            "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "query_pre_attn_scalar": 8,
            "sliding_window": 7,
            "rope_parameters": {
                "full_attention": LINEAR,
                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            },
        },
    ),
    "cohere": ("Cohere", {"logit_scale": 0.6, "tie_word_embeddings": True, "rms_norm_eps": LEFT_OUT}),
    "cohere2": (
        "Cohere2",
        {
            "num_hidden_layers": 3,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "logit_scale": 0.6,
            "sliding_window": 7,
            "rms_norm_eps": LEFT_OUT,
        },
    ),
    "starcoder2": ("Starcoder2", {"sliding_window": 7, "rms_norm_eps": LEFT_OUT}),
    # q, k, v, o and all matrices of the feed-forward have biases, and GELU replaces SiLU.
    "llama_biases": ("Llama", {"attention_bias": True, "mlp_bias": True, "hidden_act": "gelu"}),
    # 24 positions exceed the model's length of 12, so the base of the frequencies grows with the sequence.
    "dynamic": (
        "Llama",
        {
            "hidden_act": "gelu_pytorch_tanh",
            "max_position_embeddings": 12,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
        },
    ),
    # The first layer has full attention, the others have a window.
    "qwen2_windows": (
        "Qwen2",
        {
            "num_hidden_layers": 3,
            "head_dim": LEFT_OUT,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "use_sliding_window": True,
            "sliding_window": 7,
            "max_window_layers": 1,
        },
    ),
    "cohere_norms": ("Cohere", {"use_qk_norm": True, "logit_scale": 0.6, "rms_norm_eps": LEFT_OUT}),
    # Values are wider than keys, the rotary embedding pairs element p with p + half, and attention_bias adds
    # every bias that it controls.
    "deepseek_v3_wide": (
        "DeepseekV3",
        DEEPSEEK
        | {
            "q_lora_rank": 12,
            "v_head_dim": 14,
            "n_group": 1,
            "topk_group": 1,
            "norm_topk_prob": True,
            "rope_interleave": False,
            "attention_bias": True,
        },
    ),
    "gpt2_layers": ("GPT2", GPT2 | {"scale_attn_by_inverse_layer_idx": True} | dict.fromkeys(NOT_OF_GPT2,
                                                                                             LEFT_OUT)),
    # n_inner has its default, four times n_embd. Without dropout, training is reproducible.
    "gpt2": ("GPT2", GPT2 | dict.fromkeys(NOT_OF_GPT2, LEFT_OUT)),
}


def make_model(family, more):
    config = getattr(transformers, f"{family}TextConfig" if family == "Gemma3" else f"{family}Config")(
        **{k: v for k, v in (SHAPE | more).items() if v is not LEFT_OUT}, attn_implementation="eager",
        dtype="bfloat16"
    )
    return kind_of(family)(config)


def kind_of(family):
    return getattr(transformers, f"{family}LMHeadModel" if family == "GPT2" else f"{family}ForCausalLM")


def set_weights(model, generator):
    """Draws weights so large that attention is far from uniform and every gradient is far from zero."""
    around = 0.0 if "gemma" in model.config.model_type else 1.0  # mean of the weights of a norm
    for name, p in model.named_parameters():
        noise = torch.randn(p.shape, generator=generator)
        if p.dim() == 1 and name.endswith("bias"):
            noise *= 0.3
        elif name.endswith("weight") and (p.dim() == 1 or name.endswith("_norm.weight")):
            noise = around + 0.2 * noise
        elif "embed" in name or ".wte." in name or ".wpe." in name:
            noise *= 0.5
        else:
            noise *= 1.5 * p.shape[1] ** -0.5
        p.data = noise.bfloat16()
    for name, b in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            b.data = (0.2 * torch.randn(b.shape, generator=generator)).bfloat16()


def in_files(name, grad, family):
    """Returns a gradient under the tensor names of files. transformers keeps gate and up of all experts in
    one tensor."""
    parts = {name: grad}
    if name.endswith("experts.gate_up_proj"):
        gate, up = grad.chunk(2, dim=1)
        parts = {name.replace("gate_up", "gate") + ".weight": gate, name.replace("gate_up",
                                                                                 "up") + ".weight": up}
    elif name.endswith("experts.down_proj"):
        parts = {name + ".weight": grad}
    if family == "GPT2" and ".h." in name and grad.dim() == 2:
        return {name: grad.t()}  # grad is [out, in]; files of this family store the transposed matrix
    if family != "Mixtral":
        return parts
    spelled = {"mlp": "block_sparse_moe", "gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    return {".".join(spelled.get(word, word) for word in k.split(".")): v for k, v in parts.items()}


def pack(tensors):
    """Returns the tensors under Baichuan's names, with q, k and v as one matrix."""
    packed = {k: v for k, v in tensors.items() if not any(f".{p}_proj." in k for p in "qkv")}
    for k in [k for k in tensors if ".q_proj." in k]:
        parts = [tensors[k.replace(".q_proj.", f".{p}_proj.")] for p in "qkv"]
        packed[k.replace(".q_proj.", ".W_pack.")] = torch.cat(parts)
    return packed


def as_baichuan(folder):
    """Turns a Llama folder into a Baichuan folder. Baichuan computes like Llama; transformers lacks it."""
    config = json.loads((folder / "config.json").read_text())
    for key in ("num_key_value_heads", "head_dim", "attention_bias", "mlp_bias", "rope_parameters",
                "pretraining_tp"):
        config.pop(key, None)
    config |= {"architectures": ["BaichuanForCausalLM"], "model_type": "baichuan"}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for file in ("model.safetensors", "golden.safetensors"):
        with safe_open(folder / file, "pt") as f:
            metadata = f.metadata()
        save_file(pack(load_file(folder / file)), folder / file, metadata)


def write_golden(folder, name, family, more):
    generator = torch.Generator().manual_seed(7)
    model = make_model(family, more)
    set_weights(model, generator)
    model.bfloat16().save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokens = torch.randint(0, VOCAB, (SEQUENCES, LENGTH), generator=generator)
    targets = torch.randint(0, VOCAB, (SEQUENCES, LENGTH), generator=generator)
    targets[0, 5] = targets[0, LENGTH - 1] = targets[1, 0] = -1
    kind = kind_of(family)  # loads again, because the cast to bf16 also rounded the rotary frequencies
    model = kind.from_pretrained(folder, dtype="float32", attn_implementation="eager").train()
    logits = model(input_ids=tokens, use_cache=False).logits.reshape(-1, VOCAB)
    flat = targets.reshape(-1)
    losses = torch.nn.functional.cross_entropy(logits, flat, ignore_index=-1, reduction="none")
    loss = losses.sum() / (flat >= 0).sum()
    loss.backward()
    out = {"losses": losses.detach(), "tokens": tokens.reshape(-1).int(), "targets": flat.int()}
    for parameter, p in model.named_parameters():
        out |= {f"grad/{k}": v for k, v in in_files(parameter, p.grad, family).items()}
    made_with = f"torch {torch.__version__}, transformers {transformers.__version__}"
    save_file({k: v.contiguous() for k, v in out.items()}, folder / "golden.safetensors",
              {"made_with": made_with})
    weights = load_file(folder / "model.safetensors")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    if name == "baichuan":
        as_baichuan(folder)
    print(f"{name}: loss {loss.item():.7f}")


def main(folder, names):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name in names or FAMILIES:
        (folder / name).mkdir(parents=True, exist_ok=True)
        write_golden(folder / name, name, *FAMILIES[name])


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
