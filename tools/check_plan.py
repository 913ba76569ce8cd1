#!/usr/bin/env python3
"""Compares the estimates of `ottava plan` with `ottava train` on this machine: memory, tokens per second.

    tools/check_plan.py [--program build/release/ottava] [--rounds 3] [--only WORD]

Each round plans and trains each configuration for a few steps of random tokens, alternately, so that
disturbances of the machine affect both. The medians of the rounds are compared. mpirun starts several ranks
with one thread each; the rank with the most memory is compared. Memory: the dry run's sum, the allocated peak
and the resident peak. Prints a table. The exit code is 1 if memory differs by more than 5%, or, for one rank,
time by more than 25%.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
from statistics import median

DEBUG = "--model.preset=debug --train.seq_len=256 --train.batch_size=4"
SMALL = "--model.preset=42M --train.seq_len=256 --train.batch_size=2"
RANKS = "--model.preset=10M --train.seq_len=256 --train.batch_size=2 --train.threads=1"
GATHER = (" --train.mixed_precision=fp8 --float8.enable_fsdp_float8_all_gather=true "
          "--float8.precompute_float8_dynamic_scale_for_fsdp=true")
CONFIGURATIONS = {
    "debug bf16": DEBUG + " --train.mixed_precision=bf16",
    "debug fp8": DEBUG + " --train.mixed_precision=fp8",
    "10M fp32": "--model.preset=10M --train.seq_len=256 --train.batch_size=4 --train.mixed_precision=fp32",
    "10M rowwise": "--model.preset=10M --train.seq_len=512 --train.batch_size=2 --train.mixed_precision=fp8 "
                   "--float8.recipe_name=rowwise",
    "10M accumulated": "--model.preset=10M --train.seq_len=256 --train.batch_size=2 "
                       "--train.grad_accum_steps=3 --train.mixed_precision=fp8",
    "42M bf16": SMALL + " --train.mixed_precision=bf16",
    "42M fp8": SMALL + " --train.mixed_precision=fp8",
    "42M recomputed": SMALL + " --train.mixed_precision=fp8 --train.activation_checkpointing=full",
    "42M chunked": SMALL + " --train.mixed_precision=bf16 "
                   "--train.loss_fn=chunked_cross_entropy --train.ce_chunk_size=128",
    "124M fp8": "--model.preset=124M --train.seq_len=256 --train.batch_size=1 --train.mixed_precision=fp8",
}
ON_RANKS = {
    "dp_shard 4 bf16": (4, RANKS + " --train.mixed_precision=bf16"),
    "dp_shard 4 fp8": (4, RANKS + " --train.mixed_precision=fp8"),
    "dp_shard 4 fp8 gather": (4, RANKS + GATHER),
    "dp_shard 4 deferred": (4, RANKS + GATHER + " --train.grad_accum_steps=2 "
                            "--distributed.defer_fsdp_grad_sync=true"),
    "dp_shard 2 x dp_replicate 2": (4, RANKS + GATHER + " --distributed.dp_replicate=2"),
    "tp 2": (2, RANKS + " --train.mixed_precision=bf16 --distributed.tp=2"),
    "tp 2 x dp_shard 2 fp8": (4, RANKS + GATHER + " --distributed.tp=2 --float8.tensor_parallel=true"),
    "cp 2": (2, RANKS + " --train.mixed_precision=fp8 --distributed.cp=2"),
    "pp 2": (2, RANKS + " --train.mixed_precision=fp8 --distributed.pp=2 --train.grad_accum_steps=4"),
    "pp 2 x dp_shard 2, interleaved": (4, RANKS + GATHER + " --distributed.pp=2 --train.grad_accum_steps=4 "
                                       "--distributed.pp_schedule=interleaved_1f1b"),
}


def plan(program, arguments, ranks):
    command = [program, "plan", *arguments, "--json", f"--ranks={ranks}"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def train(program, arguments, ranks, steps):
    """Returns the tokens per second, and the MiB allocated and resident on the rank with the most memory."""
    with tempfile.TemporaryDirectory() as folder:
        launcher = ["mpirun", "--oversubscribe", "--allow-run-as-root", "-np",
                    str(ranks)] if ranks > 1 else []
        command = [*launcher, program, "train", *arguments, "--data.format=synthetic",
                   "--checkpoint.interval=0",
                   "--metrics.log_interval=1", "--metrics.log_rank=-1", f"--train.max_steps={steps}",
                   f"--run.dir={folder}/run"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        memory = re.findall(r"Peak memory: planned ([\d.]+) MiB, allocated ([\d.]+) MiB, resident ([\d.]+)",
                            done.stdout + done.stderr)
        with open(f"{folder}/run/metrics.jsonl") as lines:
            speeds = [json.loads(line)["tps"] for line in lines if '"tps"' in line]
        return [median(speeds[1:]), *max([float(x) for x in line[1:]] for line in memory)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/release/ottava")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    failed = False
    print("| configuration | planned MiB | allocated | off | resident | planned tokens/s | measured | off |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, (ranks, text) in ({name: (1, text) for name, text in CONFIGURATIONS.items()}
                                | ON_RANKS).items():
        if options.only not in name:
            continue
        plans, runs = [], []
        for _ in range(options.rounds):
            plans.append(plan(options.program, text.split(), ranks))
            runs.append(train(options.program, text.split(), ranks, options.steps))
        need = plans[0]["memory_bytes"]["all"] / 2**20
        allocated, resident = runs[0][1:]
        planned, measured = median(p["tokens_per_second"] for p in plans), median(r[0] for r in runs)
        off, late = need / allocated - 1, planned / measured - 1
        failed |= abs(off) > 0.05 or (ranks == 1 and abs(late) > 0.25)
        print(f"| {name} | {need:.1f} | {allocated:.1f} | {100 * off:+.1f}% | {resident:.1f} "
              f"| {planned:.0f} | {measured:.0f} | {100 * late:+.0f}% |", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
