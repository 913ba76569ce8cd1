#!/usr/bin/env python3
"""Makes the report of a run of bench/gpu/run.sh: Markdown for reading, JSON for programs.

    bench/gpu/report.py results.jsonl [--name h200-ceilings] [--to bench/results]

Writes NAME.md and NAME.json in the folder. Every figure comes from the results; what failed or is missing is said.
"""
import argparse
import json
import pathlib

import roofline


def cell(value):
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.2e}" if value and abs(value) < 0.01 else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def table(rows, columns):
    """columns: (title, key or function of a row)."""
    lines = ["| " + " | ".join(title for title, _ in columns) + " |", "|---" * len(columns) + "|"]
    for row in rows:
        values = [key(row) if callable(key) else row.get(key) for _, key in columns]
        lines.append("| " + " | ".join(cell(value) for value in values) + " |")
    return "\n".join(lines) + "\n"


def ok(rows):
    return [row for row in rows if row.get("status", "ok") == "ok"]


def failures(rows, keys):
    """What failed, and why, a line each."""
    bad = [row for row in rows if row.get("status", "ok") != "ok"]
    if not bad:
        return ""
    lines = [f"- {' '.join(str(row[key]) for key in keys if key in row)}: {row['status']}" for row in bad]
    return f"{len(bad)} of {len(rows)} cases gave no figure:\n\n" + "\n".join(lines) + "\n"


# ---- one section a stage ----


def environment(rows, runs):
    text = table(rows, (("what", "key"), ("here", "value")))
    return text + "\n" + table(runs, (("stage", "name"), ("command", "command"), ("exit", "rc"), ("s", "seconds")))


def ceilings(rows):
    return table([r for r in rows if r["case"] != "device"], (
        ("what", "case"), ("us", "us"), ("GB/s", "gb_per_s"), ("TFLOP/s", "tflops")))


GEMM_COLUMNS = (("bf16", 0), ("tensorwise", 1), ("tensorwise", 0), ("rowwise", 1), ("rowwise", 0), ("block", 0))


def gemm_title(recipe, fast):
    return recipe if recipe in ("bf16", "block") else f"{recipe} {'fast' if fast else 'split'}"


def gemm_table(rows, rate):
    """TFLOP/s: a line for each linear and product, a column for each recipe."""
    places = list(dict.fromkeys((r["model"], r["shape"], r["gemm"]) for r in rows))
    lines = []
    for place in places:
        line = dict(zip(("model", "shape", "gemm"), place))
        for r in rows:
            if (r["model"], r["shape"], r["gemm"]) == place:
                line[gemm_title(r["recipe"], r["fast_accum"])] = r.get(rate)
        lines.append(line)
    titles = [gemm_title(recipe, fast) for recipe, fast in GEMM_COLUMNS]
    return table(lines, [("model", "model"), ("linear", "shape"), ("product", "gemm")] + [(t, t) for t in titles])


def gemm_errors(rows):
    groups = dict.fromkeys((r["recipe"], r["fast_accum"], r["d"]) for r in rows)
    lines = []
    for group in groups:
        errors = [r["rel_error"] for r in rows if (r["recipe"], r["fast_accum"], r["d"]) == group]
        known = [e for e in errors if e is not None]
        lines.append({"recipe": gemm_title(*group[:2]), "d": group[2], "least": min(known, default=None),
                      "most": max(known, default=None), "wrong": sum(e is None or e > 0.05 for e in errors)})
    return table(lines, (("recipe", "recipe"), ("D", "d"), ("least error", "least"), ("largest", "most"),
                         ("cases above 5% or not finite", "wrong")))


def fp8_gemm(rows):
    cases = ok([r for r in rows if "recipe" in r])
    text = ""
    for d, beta in (("bf16", 0), ("fp32", 1)):
        chosen = [r for r in cases if (r["d"], r["beta"]) == (d, beta)]
        how = "written" if beta == 0 else "added to"
        text += f"TFLOP/s, D in {d} and {how}, the best algorithm:\n\n{gemm_table(chosen, 'tflops_best')}\n"
    slower = [r["tflops_best"] / r["tflops"] for r in cases if r["tflops"]]
    if slower:
        text += f"The best algorithm beside the one the library puts first: {max(slower):.2f}x at most, " \
                f"{sum(slower) / len(slower):.3f}x on average.\n\n"
    text += "RMS error relative to the RMS of float64 dot products of the same codes:\n\n" + gemm_errors(cases) + "\n"
    for probe in (r for r in rows if "case" in r):
        text += f"{probe['case']}: {probe['status']}\n\n"
    products = [r for r in rows if "recipe" in r]
    return text + failures(products, ("model", "shape", "gemm", "recipe", "fast_accum", "d", "beta"))


def torch_gemm(rows):
    text = f"TFLOP/s of `torch._scaled_mm` and bf16 `matmul`:\n\n{gemm_table(ok(rows), 'tflops')}\n"
    return text + failures(rows, ("model", "shape", "gemm", "recipe", "fast_accum"))


def fp8_bits(rows):
    return table(rows, (("formats", "formats"), ("mode", "mode"), ("K", "K"), ("status", "status"), ("of", "samples"),
                        ("equal to the model", "equal"), ("RMS error", "rms_error"),
                        ("the model's", "model_rms_error")))


def tensor_core(rows):
    """Single instructions by operands and formats, with what explains the wrong ones; then whole contractions."""
    by_case = {}
    for r in rows:
        by_case.setdefault(r["case"], []).append(r)
    text = failures(by_case.get("layout", []), ()) + "One instruction:\n\n"
    groups = {}
    for r in by_case.get("instruction", []):
        line = groups.setdefault((r["formats"], r["operands"]),
                                 {"formats": r["formats"], "operands": r["operands"], "vectors": 0, "mismatches": 0})
        line["vectors"] += r["vectors"]
        line["mismatches"] += r["mismatches"]
    columns = (("formats", "formats"), ("operands", "operands"), ("results", "vectors"),
               ("not the model's", "mismatches"))
    text += table(groups.values(), columns)
    wrong = [r for r in by_case.get("instruction", []) if r["mismatches"]]
    if wrong:
        text += "\nWhere it is not the model:\n\n" + table(wrong, columns + (("accumulator", "accumulator"),
                                                                          ("explained by", "explained_by")))
    text += "\nContractions, errors relative to the RMS of float64 dot products:\n\n" + table(
        by_case.get("contraction", []),
        (("formats", "formats"), ("data", "data"), ("mode", "mode"), ("K", "K"), ("results", "vectors"),
         ("not the model's", "mismatches"), ("RMS error", "rms_error"), ("worst", "worst_error"),
         ("the model's RMS", "model_rms_error"), ("worst", "model_worst_error")))
    text += "\nRules, and how many results of single instructions each explains:\n\n" + table(
        by_case.get("hypothesis", []),
        (("rule", "rule"), ("explains", "explained"), ("of", "vectors"), ("of those that are not the model's",
         "mismatches_explained")))
    if "mismatch" in by_case:
        text += "\nExamples:\n\n" + table(by_case["mismatch"], [(key, key) for key in (
            "of", "formats", "mode", "K", "c", "got", "expected")])
    return text


def attention(rows):
    shape = (("layout", "layout"), ("documents", "documents"), ("length", "length"), ("heads", "heads"),
             ("KV heads", "kv_heads"), ("head_dim", "head_dim"))
    times = [r for r in rows if r["what"] == "time"]
    text = "Causal; TFLOP/s count half of all pairs of queries and keys, and 2.5 times that backward.\n\n" + table(
        times, (("model", "model"), ("pass", "direction")) + shape + (
            ("us", "us"), ("TFLOP/s", "tflops"), ("engine", "engine"), ("workspace B", "workspace"),
            ("plan s", "build_seconds"), ("status", "status")))
    checks = [r for r in rows if r["what"] == "check"]
    text += "\nErrors relative to the RMS of the reference; same bits: of two backward passes.\n\n" + table(
        checks, shape + (("lengths", "lengths"), ("behind inputs", "beyond_inputs"),
                         ("deterministic", "deterministic"), ("O", "error_o"), ("LSE", "error_lse"),
                         ("dQ", "error_grad_q"), ("dK", "error_grad_k"), ("dV", "error_grad_v"),
                         ("same bits", "same_bits"), ("scratch overrun B", "scratch_overrun"), ("status", "status")))
    return text


def elementwise(rows):
    text = table(ok(rows), (("kernel", "case"), ("rows", "rows"), ("columns", "columns"),
                            ("B/element", "bytes_per_element"), ("us", "us"), ("GB/s", "gb_per_s"),
                            ("share of copy", "share")))
    return text + "\n" + failures(rows, ("case", "rows", "columns"))


def torch_step(rows):
    text = table(ok(rows), (("model", "preset"), ("case", "case"), ("state", "state"), ("batch", "batch"),
                            ("tokens", "seq_len"), ("ms", "step_ms"), ("tokens/s", "tokens_per_s"),
                            ("peak GiB", "peak_memory_gib"), ("first step s", "compile_s"), ("attention", "sdpa")))
    return text + "\n" + failures(rows, ("preset", "case"))


SECTIONS = (
    ("ceilings", "Ceilings", ceilings),
    ("fp8_gemm", "cuBLASLt's products", fp8_gemm),
    ("torch_gemm", "PyTorch's products", torch_gemm),
    ("fp8_bits", "cuBLASLt's products and the tensor-core model", fp8_bits),
    ("tensor_core", "The tensor-core model", tensor_core),
    ("attention", "cuDNN attention", attention),
    ("elementwise", "Kernels that move bytes", elementwise),
    ("torch_step", "PyTorch's training step", torch_step),
)


def report(results, broken):
    stages = {}
    for r in results:
        stages.setdefault(r["stage"], []).append(r)
    device = next((r for r in stages.get("ceilings", []) if r.get("case") == "device"), {})
    text = f"# Measured on {device.get('name', 'an unknown device')}\n\n"
    if device.get("name") == "CPU shim":
        text += "**A rehearsal without a GPU: no figure here is a measurement.**\n\n"
    text += "Medians of samples of 200 us or more, timed by events after 5 ms of warm-up, on random data, inputs out " \
            "of the cache: burst rates, taken before a card reaches its power limit.\n\n"
    if broken:
        text += f"{broken} broken lines of a program that was ended are left out.\n\n"
    text += "## How\n\n" + environment(stages.get("environment", []), stages.get("run", []))
    for stage, title, section in SECTIONS:
        text += f"\n## {title}\n\n" + (section(stages[stage]) if stage in stages else "Not measured.\n")
    return text + "\n## A step's budget\n\n" + roofline.tables(results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--name", default="h200-ceilings")
    parser.add_argument("--to", type=pathlib.Path, default=pathlib.Path("bench/results"))
    arguments = parser.parse_args()
    results, broken = roofline.read_results(arguments.results)
    arguments.to.mkdir(parents=True, exist_ok=True)
    (arguments.to / f"{arguments.name}.md").write_text(report(results, broken))
    with open(arguments.to / f"{arguments.name}.json", "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(r) for r in results) + "\n]\n")
    print(f"{arguments.to / arguments.name}.md and .json: {len(results)} results")


if __name__ == "__main__":
    main()
