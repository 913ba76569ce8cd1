#!/usr/bin/env python3
"""Compares Ottava's speed on this machine's CPU with PyTorch's, and with an older Ottava. Prints one Markdown
table.

    tools/compare_pytorch.py [--products 1024,2048] [--steps 42M,124M] [--generate 124M,1B] ...

    --products SIZES     square products: the sum of a linear layer's output and two gradients
    --steps PRESETS      training steps from the same weights: 4 sequences of 256 tokens, or 512 from 124M on
    --generate PRESETS   one token at a time, without PyTorch: also the share of memcpy's bandwidth and
                         processor time
    --pytorch LIST       PyTorch's contestants, default fp32,bf16,bf16-compile. Products: fp32, bf16. Steps:
                         fp32, bf16 (autocast, fp32 weights), bf16-pure (bf16 weights and moments), float8
                         (torchao, emulated); -compile after a name adds torch.compile
    --before PROGRAM     an older ottava, which takes part in every round
    --neighbour          a process copies 256 MiB in a loop at the same time
    --threads N  --repeats N  --ottava PROGRAM

Without --products, --steps and --generate all three are measured, with the values above. The contestants
alternate, so that disturbances of the machine affect all of them, and their medians are compared. Each of
PyTorch's contestants is a process that waits for its turn; `ottava bench` runs in between. With one thread,
time is CPU time. Needs torch; steps need transformers, float8 needs torchao.
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


def listed(text):
    return [item for item in (text or "").split(",") if item]


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

    layers = {size: linear_layer(int(size)) for size in listed(arguments.products)}
    return lambda: {size: statistics.median(seconds_of(layer) for _ in range(3)) for size,
                    layer in layers.items()}


def open_steps(arguments, name):
    """Returns a function that does one training step: {preset: seconds}."""
    import torch
    from transformers import AutoModelForCausalLM

    clock, preset = clock_of(arguments), arguments.steps
    format, *how = name.split("-")
    dtype = torch.bfloat16 if "pure" in how else torch.float32
    model = AutoModelForCausalLM.from_pretrained(arguments.folder, dtype=dtype, attn_implementation="sdpa")
    if format == "float8":
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        convert_to_float8_training(model, config=Float8LinearConfig(emulate=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1,
                                  fused=True)
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
    """Measures once for each line of standard input, and prints the seconds as JSON."""
    if arguments.worker == "neighbour":
        copy_memory()
    import torch

    torch.set_num_threads(arguments.threads)
    take_turn = (open_steps if arguments.steps else open_products)(arguments, arguments.worker)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(take_turn()), flush=True)


def start_worker(arguments, name, **options):
    command = [sys.executable, os.path.abspath(__file__), "--worker", name, f"--threads={arguments.threads}"]
    command += [f"--{key}={value}" for key, value in options.items()]
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads))
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                            env=environment)


def start_workers(arguments, names, **options):
    workers = {name: start_worker(arguments, name, **options) for name in names}
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
    """Returns the results of one `ottava bench`."""
    command = [program, "bench", what, "--json", f"--threads={arguments.threads}", *more]
    done = subprocess.run(command, stdout=subprocess.PIPE)
    if done.returncode:
        sys.exit(f"compare_pytorch: {' '.join(command)} exits with status {done.returncode}")
    return json.loads(done.stdout)


def programs(arguments):
    return {"Ottava": arguments.ottava, **({"before:": arguments.before} if arguments.before else {})}


def make_weights(arguments, preset, folder):
    """Writes Ottava's initial weights as a Hugging Face folder."""
    run, hf = os.path.join(folder, "run"), os.path.join(folder, "hf")
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([arguments.ottava, "train", f"--model.preset={preset}", "--train.max_steps=1",
                    "--data.format=synthetic",
                    "--train.batch_size=1", "--train.seq_len=16", "--optimizer.lr=1e-12", f"--run.dir={run}",
                    "--train.mixed_precision=fp32"], **quiet)
    subprocess.run([arguments.ottava, "export", run, "--out", hf, "--dtype=fp32"], **quiet)
    return hf


# ---- rounds: each measurement returns its rows, {title: {contestant: cell}} ----


def note(turns, contestant, row, value):
    turns.setdefault(row, {}).setdefault(contestant, []).append(value)


def cells(values, text):
    return {name: text(statistics.median(taken)) for name, taken in values.items()}


def speeds(taken, work):
    """Returns cells like "747.0 (1.00)": work per second, and the speed relative to Ottava's fp8."""
    ours = statistics.median(taken["Ottava fp8"])
    return cells(taken, lambda seconds: f"{work / seconds:.1f} ({seconds / ours:.2f})")


def measure_products(arguments):
    sizes, turns = listed(arguments.products), {}
    shapes = " ".join(f"{size},{size},{size}" for size in sizes)
    names = {"e4m3 x e4m3": "fp8", "e5m2 x e4m3": "fp8 (e5m2 x e4m3)", "bf16": "bf16", "fp32": "fp32"}
    workers = start_workers(arguments, [name for name in ("bf16", "fp32")
                                        if name in listed(arguments.pytorch)],
                            products=arguments.products)
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
    return {f"products, {size} each way: GFLOP/s": speeds(turns[size], 3 * 2e-9 * float(size) ** 3)
            for size in sizes}


def measure_step(arguments, preset):
    turns, tokens = {}, 4 * length_of(preset)
    options = [f"--preset={preset}", f"--precision={PRECISIONS}", "--batch=4",
               f"--seq-len={length_of(preset)}"]
    with tempfile.TemporaryDirectory() as folder:
        workers = start_workers(arguments, listed(arguments.pytorch), steps=preset,
                                folder=make_weights(arguments, preset, folder))
    for _ in range(arguments.repeats):
        for who, program in programs(arguments).items():
            for r in run_bench(program, arguments, "step", "--repeats=1", *options)["results"]:
                note(turns, f"{who} {r['variant']}", preset, r["seconds"])
        for name, process in workers.items():
            note(turns, f"PyTorch {name}", preset, ask(process)[preset])
    stop(workers)
    return {f"step, {preset}, 4 x {length_of(preset)}: tokens/s": speeds(turns[preset], tokens)}


def measure_generation(arguments, preset):
    # Opening a large model takes long, so each program is opened once and its precisions alternate.
    turns, rounds = {}, arguments.repeats if arguments.before else 1
    options = [f"--preset={preset}", f"--precision={PRECISIONS}",
               f"--repeats={15 * arguments.repeats // rounds}"]
    for _ in range(rounds):
        for who, program in programs(arguments).items():
            for r in run_bench(program, arguments, "generate", *options)["results"]:
                name, own = f"{who} {r['variant']}", r["seconds"] if arguments.threads == 1 else math.nan
                note(turns, name, "speed", r["seconds"])
                note(turns, name, "memcpy", r["of_peak"])
                note(turns, name, "processor", r.get("processor_seconds",
                                                     own))  # older programs do not report this time
    return {f"generation, {preset}: tokens/s": speeds(turns["speed"], 1),
            f"generation, {preset}: of memcpy's bandwidth": cells(turns["memcpy"],
                                                                  lambda share: f"{100 * share:.0f}%"),
            f"generation, {preset}: processor time, ms a token": cells(turns["processor"],
                    lambda seconds: f"{1e3 * seconds:.2f}")}


def measure_all(arguments):
    rows = []
    if listed(arguments.products):
        rows += measure_products(arguments).items()
    for preset in listed(arguments.steps):
        rows += measure_step(arguments, preset).items()
    for preset in listed(arguments.generate):
        rows += measure_generation(arguments, preset).items()
    return rows


def print_table(rows):
    names = list(dict.fromkeys(name for _, cells in rows for name in cells))
    print("| (Ottava fp8 is ... times as fast) | " + " | ".join(names) + " |")
    print("|---|" + "---|" * len(names))
    for title, cells in rows:
        print(f"| {title} | " + " | ".join(cells.get(name, "") for name in names) + " |")


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in "products", "steps", "generate", "before":
        parser.add_argument(f"--{name}")
    parser.add_argument("--pytorch", default="fp32,bf16,bf16-compile")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ottava", default="build/release/ottava")
    parser.add_argument("--neighbour", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not (arguments.products or arguments.steps or arguments.generate):
        arguments.products, arguments.steps, arguments.generate = "1024,2048", "42M,124M", "124M,1B"
    return arguments


def main():
    arguments = parse()
    if arguments.worker:
        return worker(arguments)
    neighbour = start_worker(arguments, "neighbour") if arguments.neighbour else None
    load = os.getloadavg()[0]
    try:
        rows = measure_all(arguments)
    finally:
        if neighbour:
            neighbour.kill()
            neighbour.wait()
    print_table(rows)
    print(f"\n{arguments.threads} threads, medians of {arguments.repeats} turns"
          f"{', next to a process that copies 256 MiB in a loop' if neighbour else ''}; "
          f"load average {load:.1f} before, {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
