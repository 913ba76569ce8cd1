#!/usr/bin/env python3
"""Training steps of a Llama in PyTorch, as torchtitan trains it, in bf16 and in torchao's float8.

    bench/gpu/torch_step.py --out FILE [--preset 1b|8b|tiny] [--state fp32|bf16] [--cases bf16,tensorwise]
                            [--batch 1] [--seq-len 8192] [--steps 5] [--warmup 3] [--checkpoint]
                            [--seconds 540] [--peak-tflops N] [--device cuda|cpu]

Each case runs in its own process and appends one JSON line to FILE. If a case fails, its status gives the
reason. The weights are random, and every step trains on the same random tokens, so the loss must fall.

--state fp32   fp32 parameters, gradients and AdamW moments, activations in bf16 (autocast)
--state bf16   all in bf16

Blocks and the loss are compiled separately. The compiled loss reads bf16 logits [B,T,vocab], computes in fp32
and writes a bf16 gradient, so no fp32 copy of the logits exists. Without a compiler (bf16_eager) PyTorch
makes several such copies. The head is never converted to float8, as in torchtitan. On a CPU float8 is
emulated.
"""
import argparse
import contextlib
import dataclasses
import importlib.metadata
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError as error:
    sys.exit(f"torch_step: {error}; needs PyTorch 2.11 or newer: pip install torch")

CASES = ("bf16_eager", "bf16", "tensorwise", "rowwise", "rowwise_with_gw_hp")
FEWEST_SECONDS = 20  # a case is not started if less time remains
GIB = 2**30
MESSAGE_WIDTH = 300


# ---- model ----

@dataclasses.dataclass(frozen=True)
class Shape:
    dim: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int
    tied: bool
    rope_theta: float = 500000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self):
        return self.dim // self.heads


PRESETS = {
    "1b": Shape(2048, 8192, 16, 32, 8, 128256, tied=True),  # Llama 3.2 1B
    "8b": Shape(4096, 14336, 32, 32, 8, 128256, tied=False),  # Llama 3.1 8B
    "tiny": Shape(64, 192, 2, 4, 2, 512, tied=True),
}


class RMSNorm(nn.RMSNorm):
    """Casts the weight to the input's dtype, as FSDP's mixed precision does: PyTorch's fused kernel needs one
    dtype."""

    def forward(self, x):
        return F.rms_norm(x, self.normalized_shape, self.weight.type_as(x), self.eps)


def rotate(x, cos, sin):
    """RoPE of x [B,heads,T,head_dim], with pairs as in Hugging Face. cos, sin: [T,head_dim/2]."""
    a, b = x.float().chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).type_as(x)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.head_dim = shape.head_dim
        self.q_proj = nn.Linear(shape.dim, shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(shape.dim, shape.kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(shape.dim, shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.dim, bias=False)

    def forward(self, x, cos, sin):  # x [B,T,dim]
        q, k, v = (projection(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
                   for projection in (self.q_proj, self.k_proj, self.v_proj))
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v, is_causal=True,
                                           enable_gqa=True)
        return self.o_proj(y.transpose(1, 2).flatten(-2))


class MLP(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.gate_proj = nn.Linear(shape.dim, shape.hidden, bias=False)
        self.up_proj = nn.Linear(shape.dim, shape.hidden, bias=False)
        self.down_proj = nn.Linear(shape.hidden, shape.dim, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.input_layernorm = RMSNorm(shape.dim, shape.norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.dim, shape.norm_eps)
        self.mlp = MLP(shape)

    def forward(self, h, cos, sin):
        h = h + self.self_attn(self.input_layernorm(h), cos, sin)
        return h + self.mlp(self.post_attention_layernorm(h))


class Llama(nn.Module):
    """Parameters have Hugging Face's names without the prefix "model."."""

    def __init__(self, shape, seq_len, activations):
        """activations: dtype of the activations between the blocks."""
        super().__init__()
        self.activations = activations
        self.embed_tokens = nn.Embedding(shape.vocab, shape.dim)
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.dim, shape.norm_eps)
        self.lm_head = nn.Linear(shape.dim, shape.vocab, bias=False)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
        if shape.tied:
            self.lm_head.weight = self.embed_tokens.weight
        pair = torch.arange(0, shape.head_dim, 2, dtype=torch.float32)
        angle = torch.outer(torch.arange(seq_len, dtype=torch.float32),
                            shape.rope_theta ** (-pair / shape.head_dim))
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens):  # [B,T] -> [B,T,vocab]
        h = self.embed_tokens(tokens).to(self.activations)
        for layer in self.layers:
            h = layer(h, self.cos, self.sin)
        return self.lm_head(self.norm(h))


def next_token_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


# ---- one case ----

def convert_to_float8(model, recipe, device):
    from torchao.float8 import Float8LinearConfig, convert_to_float8_training

    config = Float8LinearConfig.from_recipe_name(recipe)
    if device == "cpu":
        config = dataclasses.replace(config, emulate=True)
    if recipe == "rowwise":  # as in torchtitan, because fused casts can give NaN
        import torch._inductor.config

        torch._inductor.config.emulate_precision_casts = True
    convert_to_float8_training(model, config=config, module_filter_fn=lambda _, name: "lm_head" not in name)


def make_model(arguments, shape):
    torch.manual_seed(1)
    torch.set_default_dtype(torch.float32 if arguments.state == "fp32" else torch.bfloat16)
    with torch.device(arguments.device):
        model = Llama(shape, arguments.seq_len, torch.bfloat16)
    if not arguments.worker.startswith("bf16"):
        convert_to_float8(model, arguments.worker, arguments.device)
    if arguments.checkpoint:
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

        model.layers = nn.ModuleList(checkpoint_wrapper(layer, preserve_rng_state=False)
                                     for layer in model.layers)
    if arguments.worker != "bf16_eager":
        for layer in model.layers:
            layer.compile(fullgraph=True)
    return model


def make_step(arguments, shape, model):
    """Returns a function that runs one training step on the device to its end, and returns the loss."""
    loss_of = next_token_loss if arguments.worker == "bf16_eager" else torch.compile(next_token_loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=True)
    tokens = torch.randint(shape.vocab, (arguments.batch, arguments.seq_len + 1), device=arguments.device)
    inputs, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(arguments.device, torch.bfloat16, enabled=arguments.state == "fp32"):
            loss = loss_of(model(inputs), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


def timed_steps(arguments, step, deadline):
    """Seconds and loss of each step; the warm-up steps come first."""
    steps = []
    for number in range(arguments.warmup + arguments.steps):
        if number == arguments.warmup and arguments.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        loss = step()
        steps.append((time.perf_counter() - began, loss))
        print(f"  {arguments.worker}: step {number + 1}: {steps[-1][0]:.3f} s, loss {loss:.4f}", flush=True)
        if time.monotonic() > deadline:
            break
    if len(steps) <= arguments.warmup:
        raise TimeoutError(f"out of time after {len(steps)} warm-up steps, the first of {steps[0][0]:.1f} s")
    return steps


def flops_per_token(shape, seq_len, model):
    """FLOPs as torchtitan counts them: 6 for each weight that multiplies a token, and for attention
    12 * layers * heads * head_dim * seq_len."""
    weights = sum(weight.numel() for weight in model.parameters() if weight.dim() == 2)
    if not shape.tied:
        weights -= model.embed_tokens.weight.numel()
    return 6 * weights + 12 * shape.layers * shape.heads * shape.head_dim * seq_len


def speed(arguments, shape, model, steps):
    seconds = [taken for taken, _ in steps[arguments.warmup:]]
    step_s = statistics.median(seconds)
    tokens_per_s = arguments.batch * arguments.seq_len / step_s
    result = {"step_ms": step_s * 1e3, "step_ms_min": min(seconds) * 1e3, "step_ms_max": max(seconds) * 1e3,
              "steps": len(seconds), "tokens_per_s": tokens_per_s, "compile_s": steps[0][0],
              "loss_first": steps[0][1], "loss_last": steps[-1][1]}
    if arguments.peak_tflops:
        flops = flops_per_token(shape, arguments.seq_len, model)
        result["mfu"] = tokens_per_s * flops / (arguments.peak_tflops * 1e12)
    if arguments.device == "cuda":
        result["peak_memory_gib"] = torch.cuda.max_memory_allocated() / GIB
        result["reserved_gib"] = torch.cuda.max_memory_reserved() / GIB
    return result


def attention_backends(arguments, shape):
    """The attention kernel that PyTorch chooses, and the kernels that it could run."""
    q, kv = (torch.empty(arguments.batch, heads, arguments.seq_len, shape.head_dim, dtype=torch.bfloat16,
                         device=arguments.device, requires_grad=True) for heads in (shape.heads,
                                                                                    shape.kv_heads))
    chosen = torch._fused_sdp_choice(q, kv, kv, None, 0.0, True, scale=None, enable_gqa=True)
    result = {"sdpa": torch.nn.attention.SDPBackend(chosen).name}
    if arguments.device == "cuda":
        cuda = torch.backends.cuda
        request = cuda.SDPAParams(q, kv, kv, None, 0.0, True, True)
        possible = {"flash": cuda.can_use_flash_attention, "cudnn": cuda.can_use_cudnn_attention}
        result["sdpa_possible"] = " ".join(name for name, can_use in possible.items() if can_use(request))
    return result


def first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0][:MESSAGE_WIDTH]


def run_worker(arguments):
    """Measures one case and writes its result to the file arguments.result."""
    deadline = time.monotonic() + arguments.seconds
    shape = PRESETS[arguments.preset]
    result = {"torch": torch.__version__, "device": "CPU"}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        result["torchao"] = importlib.metadata.version("torchao")
    try:
        if arguments.device == "cuda":
            result["device"] = torch.cuda.get_device_name()
        try:
            result.update(attention_backends(arguments, shape))
        except Exception as error:  # the case is measured without this description
            result["sdpa"] = first_line(error)
        model = make_model(arguments, shape)
        result["parameters"] = sum(weight.numel() for weight in model.parameters())
        steps = timed_steps(arguments, make_step(arguments, shape, model), deadline)
        result.update(speed(arguments, shape, model, steps), status="ok")
    except Exception as error:  # the result's status is the error
        traceback.print_exc()
        result["status"] = first_line(error)
    with open(arguments.result, "w") as file:
        json.dump(result, file)


# ---- all cases ----

def run_case(case, seconds):
    """The result of the case, measured in a separate process. seconds: its time limit."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "result.json")
        command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--worker", case, "--result",
                   path,
                   "--seconds", str(0.9 * seconds)]
        try:
            status = f"process ended with code {subprocess.run(command, timeout=seconds).returncode}"
        except subprocess.TimeoutExpired:
            status = f"out of time: ended after {seconds:.0f} s"
        try:
            with open(path) as file:
                return json.load(file)
        except (OSError, ValueError):
            return {"status": status}


def result_of(arguments, case, remaining, left):
    """A case may use twice its share of the remaining time. left: number of cases that remain."""
    named = {"stage": "torch_step", "preset": arguments.preset, "case": case, "state": arguments.state,
             "batch": arguments.batch, "seq_len": arguments.seq_len, "checkpoint": arguments.checkpoint}
    if remaining < FEWEST_SECONDS:
        return dict(named, status="not run: out of time")
    return dict(named, **run_case(case, min(remaining, max(FEWEST_SECONDS, 2 * remaining / left))))


def line_of(result):
    """The result as a line of text."""
    name = (f"{result['preset']:5} {result['case']:18} state {result['state']} "
            f"{result['batch']} x {result['seq_len']}"
            f"{' checkpoint' if result['checkpoint'] else ''}")
    if result["status"] != "ok":
        return f"{name}  {result['status']}"
    memory = f"{result['peak_memory_gib']:.1f} GiB, " if "peak_memory_gib" in result else ""
    return (f"{name}  {result['step_ms']:.1f} ms, {result['tokens_per_s']:.0f} tokens/s, {memory}"
            f"first step {result['compile_s']:.0f} s, "
            f"loss {result['loss_first']:.3f} to {result['loss_last']:.3f}, {result['sdpa']}")


def positive(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def case_list(text):
    cases = text.split(",")
    for case in cases:
        if case not in CASES:
            raise argparse.ArgumentTypeError(f"no case {case!r}; there are {', '.join(CASES)}")
    return cases


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="file to which the results are appended")
    parser.add_argument("--preset", choices=PRESETS, default="1b")
    parser.add_argument("--state", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--cases", type=case_list, default=CASES, help=f"of {', '.join(CASES)}")
    parser.add_argument("--batch", type=positive, default=1)
    parser.add_argument("--seq-len", type=positive, default=8192)
    parser.add_argument("--steps", type=positive, default=5)
    parser.add_argument("--warmup", type=positive, default=3,
                        help="steps before these, not timed; the first one compiles")
    parser.add_argument("--checkpoint", action="store_true", help="recompute each block in the backward pass")
    parser.add_argument("--seconds", type=float, default=540, help="time limit for all cases")
    parser.add_argument("--peak-tflops", type=float, help="report mfu against this peak")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--worker", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch finds no CUDA device; --device cpu --preset tiny needs none")
    return arguments


def main():
    arguments = read_arguments()
    if arguments.worker:
        return run_worker(arguments)
    deadline = time.monotonic() + arguments.seconds
    try:
        out = open(arguments.out, "a", buffering=1)
    except OSError as error:
        sys.exit(f"torch_step: --out {arguments.out}: {error.strerror}; name a file that can be written")
    with out:
        for index, case in enumerate(arguments.cases):
            result = result_of(arguments, case, deadline - time.monotonic(), len(arguments.cases) - index)
            out.write(json.dumps(result) + "\n")
            print(line_of(result), flush=True)


if __name__ == "__main__":
    main()
