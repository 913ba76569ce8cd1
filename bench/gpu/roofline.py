#!/usr/bin/env python3
"""A training step's time on one Hopper GPU, from what its parts take: the budget that the CUDA backend is built to.

    bench/gpu/roofline.py [results.jsonl]

Without results the rates are the planned ones; with results of bench/gpu/run.sh they are the measured ones, and both
are printed. The model of a step: its products, attention, the kernels that only move bytes (listed one by one, so that
a total can be checked), and, once a step, the weights' casts, AdamW and the gradient norm. Nothing overlaps.
"""
import json
import sys
from dataclasses import dataclass
from statistics import median

RECIPES = ("bf16", "tensorwise", "delayed", "rowwise", "block", "rowwise_with_gw_hp")
GEMMS = ("output", "grad_input", "grad_weight")


@dataclass(frozen=True)
class Llama:
    name: str
    d: int
    ff: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool

    def linears(self):
        """[N, K] of each linear of a layer."""
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return {"qkv": (q + 2 * kv, self.d), "o": (self.d, q), "gate_up": (2 * self.ff, self.d),
                "down": (self.d, self.ff)}

    def linear_parameters(self):
        return self.layers * sum(n * k for n, k in self.linears().values())

    def parameters(self):
        return self.linear_parameters() + (2 * self.layers + 1) * self.d + (1 if self.tied else 2) * self.vocab * self.d


MODELS = {
    "8b": Llama("Llama 3.1 8B", 4096, 14336, 32, 32, 8, 128, 128256, False),
    "1b": Llama("Llama 3.2 1B", 2048, 8192, 16, 32, 8, 64, 128256, True),
}


class Planned:
    """Rates assumed before anything was measured: TFLOP/s of a product (fast, split accumulation) and of attention
    (forward, backward), copy bandwidth, and the share of it that a good kernel reaches."""

    name = "planned"
    tflops = {"bf16": (770, 770), "tensorwise": (1350, 1200), "rowwise": (1300, 1130), "block": (1200, 1200)}
    attention_tflops = (600, 480)
    copy, share = 4.3e12, 0.88

    def gemm(self, model, shape, gemm, recipe, tokens):
        n, k = (model.vocab, model.d) if shape == "head" else model.linears()[shape]
        fast, split = self.tflops[recipe]
        return 2 * tokens * n * k / ((fast if gemm == "output" else split) * 1e12)

    def attention(self, model, sequences, length):
        flops = 2 * sequences * length**2 * model.heads * model.head_dim
        forward, backward = self.attention_tflops
        return flops / (forward * 1e12) + 2.5 * flops / (backward * 1e12)

    def bandwidth(self):
        return self.copy * self.share


class Measured:
    """The same from results.jsonl. Raises Missing, naming what a budget lacks."""

    name = "measured"

    class Missing(Exception):
        pass

    def __init__(self, results):
        self.gemms, self.attentions, self.shares, self.copies = {}, {}, [], []
        for r in results:
            if r.get("status", "ok") != "ok":
                continue
            if r["stage"] == "fp8_gemm" and "us_best" in r:
                key = (r["model"], r["shape"], r["gemm"], r["recipe"], r["fast_accum"], r["d"], r["beta"])
                self.gemms[key] = (r["us_best"] * 1e-6, r["M"] if r["gemm"] != "grad_weight" else r["K"])
            elif r["stage"] == "attention" and r.get("tflops"):
                self.attentions[r["head_dim"], r["direction"], r["tokens"] // r["documents"]] = r["tflops"] * 1e12
            elif r["stage"] == "elementwise" and r.get("share"):
                self.shares.append(r["share"])
            elif r["stage"] == "ceilings" and r.get("case") == "copy":
                self.copies.append(r["gb_per_s"] * 1e9)

    def gemm(self, model, shape, gemm, recipe, tokens):
        """The best algorithm's time: bf16 results, but weight gradients added up in fp32. Fast accumulation forward."""
        name = next(key for key, value in MODELS.items() if value is model)
        fast = int(gemm == "output" and recipe in ("tensorwise", "rowwise"))
        kind = ("fp32", 1) if gemm == "grad_weight" else ("bf16", 0)
        key = (name, shape, gemm, recipe, fast) + kind
        if key not in self.gemms:
            raise self.Missing("the product " + " ".join(str(part) for part in key))
        seconds, measured_tokens = self.gemms[key]
        return seconds * tokens / measured_tokens

    def attention(self, model, sequences, length):
        flops = 2 * sequences * length**2 * model.heads * model.head_dim
        total = 0
        for direction, factor in (("forward", 1), ("backward", 2.5)):
            rate = self.attentions.get((model.head_dim, direction, length))
            if rate is None:
                raise self.Missing(f"attention {direction}, head_dim {model.head_dim}, {length} tokens")
            total += factor * flops / rate
        return total

    def bandwidth(self):
        if not self.copies or not self.shares:
            raise self.Missing("the copy bandwidth or the kernels' shares of it")
        return median(self.copies) * median(self.shares)


def kernel_bytes(model, tokens, recipe):
    """Bytes that each memory-bound kernel of a layer moves: forward and backward, activations in bf16."""
    a, h = tokens * model.d, tokens * model.ff
    q, kv = model.heads * model.head_dim * tokens, model.kv_heads * model.head_dim * tokens
    bf16 = {"norms forward, with residual": 16 * a, "norms backward": 16 * a, "rope forward": 4 * (q + kv),
            "rope backward": 4 * (q + kv), "swiglu forward": 6 * h, "swiglu backward": 10 * h}
    if recipe == "bf16":
        return bf16
    if recipe in ("delayed", "block"):  # the producer writes the codes, both ways; block has 1/32 more for scales
        more = {"attention output cast": 4 * q, "gradients cast": 8 * a, "dV cast": 4 * kv}
        factor = 1.01 if recipe == "block" else 1
        return {name: factor * count for name, count in {**bf16, **more}.items()}
    if recipe == "tensorwise":  # the producer takes the amax, a second pass casts and transposes
        more = {"norms cast": 8 * a, "attention output amax, cast": 6 * q, "h cast": 4 * h, "gradients cast": 8 * a,
                "dgate, dup cast": 8 * h, "dV amax": 2 * kv, "dqkv cast": 4 * (q + 2 * kv)}
        return {**bf16, **more}
    if recipe == "rowwise":  # rows and column amaxes in the producer, a second pass writes the transposed codes
        return {"norms forward": 18 * a, "norms cast": 6 * a, "rope forward": 4 * (q + kv), "attention output": 6 * q,
                "swiglu forward": 7 * h, "h cast": 3 * h, "gradients": 12 * a, "swiglu backward": 12 * h,
                "dgate, dup cast": 6 * h, "norms backward": 16 * a, "rope backward": 5 * (q + kv), "dV": 3 * kv,
                "dqkv cast": 3 * (q + 2 * kv)}
    # rowwise_with_gw_hp: no transposed codes, the weight gradient reads bf16
    return {**bf16, "codes written by producers": 2 * a + h + 2 * h + q + kv, "attention output cast": 3 * q,
            "gradients cast": 6 * a, "dV cast": 3 * kv}


def gemm_recipe(recipe, gemm):
    """Which measured product a recipe's is."""
    if recipe == "rowwise_with_gw_hp":
        return "bf16" if gemm == "grad_weight" else "rowwise"
    return "tensorwise" if recipe == "delayed" else recipe


def budget(model, rates, recipe, sequences, length, micro_batches=1, optimizer_bytes=18):
    """Seconds of a step's parts, a micro-batch each; what happens once a step is divided by the micro-batches."""
    tokens = sequences * length
    parts = {"linears": 0.0}
    for shape in model.linears():
        for gemm in GEMMS:
            parts["linears"] += model.layers * rates.gemm(model, shape, gemm, gemm_recipe(recipe, gemm), tokens)
    parts["attention"] = model.layers * rates.attention(model, sequences, length)
    parts["head"] = sum(rates.gemm(model, "head", gemm, "bf16", tokens) for gemm in GEMMS)
    bandwidth = rates.bandwidth()
    parts["memory-bound"] = model.layers * sum(kernel_bytes(model, tokens, recipe).values()) / bandwidth
    parts["loss, embedding, last norm"] = (4 * tokens * model.vocab + 20 * tokens * model.d) / bandwidth
    weight_bytes = 0 if recipe == "bf16" else 6 if recipe.startswith("rowwise") else 4
    once = weight_bytes * model.linear_parameters() + (optimizer_bytes + 2) * model.parameters()
    parts["weights, AdamW, norm"] = once / bandwidth / micro_batches
    return parts


def table(model, rates, sequences, length, micro_batches):
    """The budget of every recipe as Markdown; a recipe that lacks a measurement has its reason below."""
    columns, missing = {}, []
    for recipe in RECIPES:
        try:
            columns[recipe] = budget(model, rates, recipe, sequences, length, micro_batches)
        except Measured.Missing as what:
            missing.append(f"{recipe}: not measured: {what}")
    tokens = sequences * length
    lines = [f"{model.name}, {sequences} x {length} tokens, {micro_batches} micro-batch(es) a step, {rates.name} rates",
             ""]
    if columns:
        totals = {recipe: sum(parts.values()) for recipe, parts in columns.items()}
        lines.append("| ms a micro-batch | " + " | ".join(columns) + " |")
        lines.append("|---|" + "---:|" * len(columns))
        for part in next(iter(columns.values())):
            lines.append(f"| {part} | " + " | ".join(f"{1e3 * parts[part]:.1f}" for parts in columns.values()) + " |")
        lines.append("| **all** | " + " | ".join(f"**{1e3 * total:.0f}**" for total in totals.values()) + " |")
        lines.append("| tokens/s | " + " | ".join(f"{tokens / total:.0f}" for total in totals.values()) + " |")
        if "bf16" in totals:
            bf16 = totals["bf16"]
            lines.append("| to bf16 | " + " | ".join(f"{bf16 / total:.2f}x" for total in totals.values()) + " |")
    return "\n".join(lines + [""] * bool(missing) + missing) + "\n"


def tables(results):
    """All budgets: planned, and measured when there are results."""
    out = []
    for rates in [Planned()] + ([Measured(results)] if results else []):
        for model, sequences, length, micro_batches in (("8b", 1, 8192, 1), ("8b", 1, 8192, 16), ("1b", 4, 2048, 1)):
            out.append(table(MODELS[model], rates, sequences, length, micro_batches))
    return "\n".join(out)


def read_results(path):
    """The results of a run, and how many lines are broken: a program that was ended leaves half a line."""
    results, broken = [], 0
    with open(path) as file:
        for line in file:
            try:
                results.append(json.loads(line))
            except ValueError:
                broken += 1
    return results, broken


def main():
    results, broken = read_results(sys.argv[1]) if len(sys.argv) > 1 else ([], 0)
    if broken:
        print(f"{broken} lines of {sys.argv[1]} are broken and left out\n")
    print(tables(results))


if __name__ == "__main__":
    main()
