#!/usr/bin/env python3
"""Compares Ottava's speed on this machine's CPU with PyTorch's, and with an older Ottava. Prints Markdown tables.

    tools/compare_pytorch.py products   # square products: the sum of a linear layer's output and two gradients
    tools/compare_pytorch.py steps      # training steps of presets, from the same weights
    tools/compare_pytorch.py generate   # one token at a time, without PyTorch

    --presets 42M,124M   of steps and generate; a step has 4 sequences of 256 tokens, or 512 from 124M on
    --sizes 1024,2048    of products
    --pytorch LIST       its contestants, fp32,bf16,bf16-compile unless given. Products: fp32, bf16. Steps: fp32, bf16 (autocast,
                         fp32 weights), bf16-pure (bf16 weights and moments), float8 (torchao, emulated); -compile after a name
                         adds torch.compile
    --before PROGRAM     an older ottava, which takes part in every round
    --neighbour          a process copies 256 MiB in a loop meanwhile
    --threads N  --repeats N  --ottava PROGRAM

Contestants take turns, and the medians of their turns are compared: what disturbs the machine disturbs all of them. Each of
PyTorch's contestants is a process that waits for its turn; `ottava bench` runs in between. With one thread, time is processor
time. Needs torch, and for steps transformers; for float8 torchao.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

PRECISIONS = "fp8,bf16,fp32"
NEIGHBOUR_BYTES = 256 << 20


def length_of(preset):
    return 512 if preset in ("124M", "1B", "8B") else 256


# ---- PyTorch's side: a process for each contestant ----


def clock_of(arguments):
    return time.process_time if arguments.threads == 1 else time.perf_counter


def open_products(arguments, name):
    """Returns a function that measures each size once: {size: seconds}."""
    import torch

    clock, dtype = clock_of(arguments), {"fp32": torch.float32, "bf16": torch.bfloat16}[name]

    def linear_layer(size):
        x, w, dy = (torch.rand(size, size).mul(2).sub(1).to(dtype) for _ in range(3))
        return lambda: (torch.nn.functional.linear(x, w), dy @ w, dy.t() @ x)

    def seconds_of(layer):
        layer()
        began, runs = clock(), 0
        while runs == 0 or clock() - began < 0.05:
            layer()
            runs += 1
        return (clock() - began) / runs

    layers = {size: linear_layer(int(size)) for size in arguments.sizes.split(",")}
    return lambda: {size: statistics.median(seconds_of(layer) for _ in range(3)) for size, layer in layers.items()}


def open_steps(arguments, name):
    """Returns a function that does one training step: {preset: seconds}."""
    import torch
    from transformers import AutoModelForCausalLM

    clock, preset = clock_of(arguments), arguments.presets
    format, *how = name.split("-")
    dtype = torch.bfloat16 if "pure" in how else torch.float32
    model = AutoModelForCausalLM.from_pretrained(arguments.folder, dtype=dtype, attn_implementation="sdpa")
    if format == "float8":
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        convert_to_float8_training(model, config=Float8LinearConfig(emulate=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    step_model = torch.compile(model) if "compile" in how else model
    torch.manual_seed(1)
    tokens = torch.randint(model.config.vocab_size, (4, length_of(preset) + 1))

    def step():
        began = clock()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=format != "fp32" and dtype == torch.float32):
            logits = step_model(tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        return {preset: clock() - began}

    step()
    step()
    return step


def copy_memory():
    source, target = bytearray(NEIGHBOUR_BYTES), memoryview(bytearray(NEIGHBOUR_BYTES))
    while True:
        target[:] = source


def worker(arguments):
    """Answers each line of standard input with the seconds of a turn, as JSON."""
    if arguments.worker == "neighbour":
        copy_memory()
    import torch

    torch.set_num_threads(arguments.threads)
    take_turn = {"products": open_products, "steps": open_steps}[arguments.what](arguments, arguments.worker)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(take_turn()), flush=True)


def start_worker(arguments, name, **replaced):
    options = {"presets": arguments.presets, "sizes": arguments.sizes, "threads": arguments.threads, **replaced}
    command = [sys.executable, os.path.abspath(__file__), arguments.what, "--worker", name]
    command += [f"--{key}={value}" for key, value in options.items()]
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads))
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def start_workers(arguments, names, **replaced):
    workers = {name: start_worker(arguments, name, **replaced) for name in names}
    for name, process in workers.items():
        if process.stdout.readline().strip() != "ready":
            sys.exit(f"compare_pytorch: the {name} process did not start: read its message above")
    return workers


def ask(process):
    process.stdin.write("\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def stop(workers):
    for process in workers.values():
        process.stdin.close()
        process.wait()


# ---- Ottava's side ----


def run_bench(program, arguments, what, *more):
    """The results of one `ottava bench`."""
    command = [program, "bench", what, "--json", f"--threads={arguments.threads}", *more]
    done = subprocess.run(command, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"compare_pytorch: {' '.join(command)} exits with status {done.returncode}")
    return json.loads(done.stdout)


def programs(arguments):
    return {"Ottava": arguments.ottava, **({"before:": arguments.before} if arguments.before else {})}


def make_weights(arguments, preset, folder):
    """Ottava's initial weights as a Hugging Face folder."""
    run, hf = os.path.join(folder, "run"), os.path.join(folder, "hf")
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([arguments.ottava, "train", f"--model.preset={preset}", "--train.max_steps=1", "--data.format=synthetic",
                    "--train.batch_size=1", "--train.seq_len=16", "--optimizer.lr=1e-12", f"--run.dir={run}",
                    "--train.mixed_precision=fp32"], **quiet)
    subprocess.run([arguments.ottava, "export", run, "--out", hf, "--dtype=fp32"], **quiet)
    return hf


# ---- rounds ----


def note(turns, contestant, column, value):
    turns.setdefault(contestant, {}).setdefault(column, []).append(value)


def medians_of(turns):
    return {name: {column: statistics.median(values) for column, values in columns.items()}
            for name, columns in turns.items()}


def measure_products(arguments):
    sizes, turns = arguments.sizes.split(","), {}
    shapes = " ".join(f"{size},{size},{size}" for size in sizes)
    names = {"e4m3 x e4m3": "fp8", "e5m2 x e4m3": "fp8 (e5m2 x e4m3)", "bf16": "bf16", "fp32": "fp32"}
    workers = start_workers(arguments, [name for name in ("bf16", "fp32") if name in arguments.pytorch.split(",")])
    for _ in range(arguments.repeats):
        for who, program in programs(arguments).items():
            results = run_bench(program, arguments, "gemm", "--repeats=3", f"--shapes={shapes}")["results"]
            for size in sizes:
                for variant, name in names.items():
                    note(turns, f"{who} {name}", size, sum(
                        r["seconds"] for r in results
                        if r["variant"] == variant and r["shape"] == f"{size} x {size} x {size}"))
        for name, process in workers.items():
            for size, seconds in ask(process).items():
                note(turns, f"PyTorch {name}", size, seconds)
    stop(workers)
    work = {size: 3 * 2e-9 * float(size) ** 3 for size in sizes}
    return medians_of(turns), work, {size: f"{size} each way" for size in sizes}, "GFLOP/s"


def measure_preset(arguments, preset, turns):
    options = [f"--preset={preset}", f"--precision={PRECISIONS}", "--batch=4", f"--seq-len={length_of(preset)}"]
    with tempfile.TemporaryDirectory() as folder:
        workers = start_workers(arguments, [name for name in arguments.pytorch.split(",") if name], presets=preset,
                                folder=make_weights(arguments, preset, folder))
    for _ in range(arguments.repeats):
        for who, program in programs(arguments).items():
            for r in run_bench(program, arguments, "step", "--repeats=1", *options)["results"]:
                note(turns, f"{who} {r['variant']}", preset, r["seconds"])
        for name, process in workers.items():
            note(turns, f"PyTorch {name}", preset, ask(process)[preset])
    stop(workers)


def measure_steps(arguments):
    presets, turns = arguments.presets.split(","), {}
    for preset in presets:
        measure_preset(arguments, preset, turns)
    work = {preset: 4 * length_of(preset) for preset in presets}
    return medians_of(turns), work, {p: f"{p}, 4 x {length_of(p)}" for p in presets}, "tokens/s"


def measure_generation(arguments):
    """Also of each contestant: its share of memcpy's bandwidth, and processor time."""
    presets, turns, more = arguments.presets.split(","), {}, {}
    for preset in presets:
        for _ in range(arguments.repeats):
            for who, program in programs(arguments).items():
                for r in run_bench(program, arguments, "generate", f"--preset={preset}", f"--precision={PRECISIONS}",
                                   "--repeats=15")["results"]:
                    name = f"{who} {r['variant']}"
                    note(turns, name, preset, r["seconds"])
                    note(more, name, preset + "memcpy", r["of_peak"])
                    own = r["seconds"] if arguments.threads == 1 else math.nan
                    note(more, name, preset + "processor", r.get("processor_seconds", own))
    print(f"| {', '.join(presets)} | " + " | ".join(f"{p}: of memcpy | processor time a token, ms" for p in presets) + " |")
    print("|---|" + "---|---|" * len(presets))
    for name, of in medians_of(more).items():
        print(f"| {name} | " + " | ".join(
            f"{100 * of[p + 'memcpy']:.0f}% | {1e3 * of[p + 'processor']:.2f}" for p in presets) + " |")
    print()
    return medians_of(turns), {preset: 1 for preset in presets}, {p: p for p in presets}, "tokens/s"


def print_table(medians, work, titles, unit):
    print("| | " + " | ".join(f"{title}: {unit} | Ottava fp8 is ... times as fast" for title in titles.values()) + " |")
    print("|---|" + "---|---|" * len(titles))
    for name, taken in medians.items():
        print(f"| {name} | " + " | ".join(
            f"{work[c] / taken[c]:.1f} | {taken[c] / medians['Ottava fp8'][c]:.2f}" for c in titles) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["products", "steps", "generate"])
    parser.add_argument("--presets", default="42M,124M")
    parser.add_argument("--sizes", default="1024,2048")
    parser.add_argument("--pytorch", default="fp32,bf16,bf16-compile")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ottava", default="build/release/ottava")
    parser.add_argument("--before")
    parser.add_argument("--neighbour", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments)
    measure = {"products": measure_products, "steps": measure_steps, "generate": measure_generation}[arguments.what]
    neighbour = start_worker(arguments, "neighbour") if arguments.neighbour else None
    load = os.getloadavg()[0]
    try:
        table = measure(arguments)
    finally:
        if neighbour:
            neighbour.kill()
            neighbour.wait()
    print_table(*table)
    print(f"\n{arguments.threads} threads, medians of {arguments.repeats} turns"
          f"{', next to a process that copies 256 MiB in a loop' if neighbour else ''}; "
          f"load average {load:.1f} before, {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
