#!/usr/bin/env python3
"""Writes tests/golden/adapters.safetensors and the folder tests/golden/adapter: the PEFT library's results
for adapters on tiny models, in fp32.

The base weights, tokens and targets are the variant "untied" of model_fp32.safetensors. Variants:

- "llama": an adapter for every projection;
- "rslora": adapters for q and v, with rsLoRA's scale;
- "phi3": an adapter for every projection, with the same weights fused as in Phi-3;
- "dora": "llama" with DoRA, with magnitudes that differ a little from the norms;
- "patterns": ranks and alphas of single layers, adapters in one block only, and modules that train in full.

Each variant stores the loss of every token, and the gradient of the mean loss with respect to A, B, the
magnitudes and the modules that train in full. The folders "adapter", "adapter_dora" and "adapter_patterns"
are "llama", "dora" and "patterns" as PEFT saves them.

    python tools/goldens/make_adapter_goldens.py tests/golden

A second folder, written by `ottava export --format=peft` from these adapters, is compared: PEFT must read
the same values from it. The third argument names its variant, "dora" or "patterns"; default: "llama".
"""

import pathlib
import shutil
import sys

import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

from make_model_goldens import PLAIN, SHAPE

RANK, ALPHA = 4, 6
APART = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
JOINED = ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]
VARIANTS = {
    "llama": ("Llama", APART, {}),
    "rslora": ("Llama", ["q_proj", "v_proj"], {"use_rslora": True}),
    "phi3": ("Phi3", JOINED, {}),
    "dora": ("Llama", APART, {"use_dora": True}),
    "patterns": (
        "Llama",
        APART,
        {
            "rank_pattern": {"q_proj": 2, "^model.layers.1.mlp.down_proj": 6},
            "alpha_pattern": {"v_proj": 12},
            "layers_to_transform": [1],
            "layers_pattern": "layers",
            "modules_to_save": ["lm_head", "input_layernorm"],
        },
    ),
}
FOLDERS = {"llama": "adapter", "dora": "adapter_dora", "patterns": "adapter_patterns"}


def join(weights):
    """Returns the weights with Phi-3's fused matrices."""
    out = {k: v for k, v in weights.items() if not any(f"{n}_proj" in k for n in "qkv")
           and "gate_proj" not in k and "up_proj" not in k}
    for layer in range(SHAPE["num_hidden_layers"]):
        at, mlp = f"model.layers.{layer}.self_attn.", f"model.layers.{layer}.mlp."
        out[at + "qkv_proj.weight"] = torch.cat([weights[f"{at}{n}_proj.weight"] for n in "qkv"])
        out[mlp + "gate_up_proj.weight"] = torch.cat([weights[f"{mlp}{n}_proj.weight"] for n in ("gate",
                                                                                                 "up")])
    return out


def make_base(family, weights):
    more = {"pad_token_id": None, "sliding_window": None} if family == "Phi3" else {}
    config = getattr(transformers, f"{family}Config")(
        **SHAPE, **more, tie_word_embeddings=False, rope_parameters=PLAIN, attn_implementation="eager",
        dtype="float32"
    )
    model = getattr(transformers, f"{family}ForCausalLM")(config).float()
    wanted = join(weights) if family == "Phi3" else weights
    wanted = {k: v for k, v in wanted.items() if k in dict(model.named_parameters())}
    missing, unexpected = model.load_state_dict(wanted, strict=False)
    assert not missing and not unexpected, (missing, unexpected)
    return model


def losses_of(model, golden):
    tokens, targets = golden["tokens"].long().reshape(2, -1), golden["targets"].long()
    logits = model(input_ids=tokens, use_cache=False).logits.reshape(-1, SHAPE["vocab_size"])
    return torch.nn.functional.cross_entropy(logits, targets, ignore_index=-1,
                                             reduction="none"), (targets >= 0).sum()


def plain(name):
    return name.removeprefix("base_model.model.").replace(".default", "").replace("magnitude_vector.weight",
            "magnitude_vector").replace(".modules_to_save", "")


def run(variant, weights, golden, generator):
    family, targets, more = variant
    config = LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=targets, lora_dropout=0.0, bias="none",
                        task_type="CAUSAL_LM", **more)
    model = get_peft_model(make_base(family, weights), config).train()
    out = {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.requires_grad:
                drawn = torch.randn(p.shape, generator=generator)
                size = 0.5 if "use_dora" in more else 1
                p.copy_(p * (1 + 0.1 * drawn) if p.dim() == 1 else drawn * size * p.shape[1] ** -0.5)
                out[f"weight/{plain(name)}"] = p.detach().clone()
    losses, count = losses_of(model, golden)
    (losses.sum() / count).backward()
    out |= {"losses": losses.detach()}
    out |= {f"grad/{plain(name)}": p.grad for name, p in model.named_parameters() if p.requires_grad}
    return model, out


def main(folder, ours=None, name="llama"):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    golden = load_file(folder / "model_fp32.safetensors")
    weights = {k.removeprefix("weight/"): v for k, v in golden.items() if k.startswith("weight/")
               and ".bias" not in k}
    generator = torch.Generator().manual_seed(11)
    tensors = {}
    for label, variant in VARIANTS.items():
        model, found = run(variant, weights, golden, generator)
        tensors |= {f"{label}/{key}": value.contiguous() for key, value in found.items()}
        print(f"{label}: mean loss {found['losses'].sum().item() / 45:.7f}")
        if label in FOLDERS:
            saved = folder / FOLDERS[label]
            shutil.rmtree(saved, ignore_errors=True)
            model.save_pretrained(saved)
            (saved / "README.md").unlink(missing_ok=True)
    save_file(tensors, folder / "adapters.safetensors", metadata={"format": "pt"})
    if ours:
        read = PeftModel.from_pretrained(make_base("Llama", weights), ours).eval()
        difference = (losses_of(read, golden)[0] - tensors[f"{name}/losses"]).abs().max().item()
        print(f"{ours}: losses differ by {difference:.2g}")
        assert difference < 1e-5


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:3]), *sys.argv[3:])
