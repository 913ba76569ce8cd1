#!/usr/bin/env python3
"""Training speed of Ottava beside PyTorch's: the same Llama from the same weights, in fp32, in bf16 (autocast, fp32
masters) and in torchao's emulated float8, on this machine's CPU.

    tools/compare_pytorch.py [--preset 42M] [--batch 4] [--seq-len 256] [--threads N] [--repeats 5]
                             [--ottava build/release/ottava] [--compile] [--only fp32,bf16,float8]

Needs torch, transformers, and torchao for float8. Each of PyTorch's contestants is a process of its own that stays and
does one step when it is its turn; between their turns `ottava bench step` runs. On one thread, time is processor time.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time


def worker(arguments):
    """A contestant: a step for each line on standard input, answered by its seconds and loss."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(arguments.threads)
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    model = AutoModelForCausalLM.from_pretrained(arguments.folder, dtype=torch.float32, attn_implementation="sdpa")
    if arguments.worker == "float8":
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training

        convert_to_float8_training(model, config=Float8LinearConfig(emulate=True))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    step_model = torch.compile(model) if arguments.compile else model
    torch.manual_seed(1)
    tokens = torch.randint(model.config.vocab_size, (arguments.batch, arguments.seq_len + 1))

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.worker != "fp32"):
            logits = step_model(tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    step()
    print("ready", flush=True)
    for _ in sys.stdin:
        began = clock()
        loss = step()
        print(clock() - began, loss, flush=True)


def make_weights(arguments, folder):
    """Ottava's initial weights as a Hugging Face folder."""
    run = os.path.join(folder, "run")
    hf = os.path.join(folder, "hf")
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([arguments.ottava, "train", f"--model.preset={arguments.preset}", "--train.max_steps=1",
                    "--data.format=synthetic", "--train.batch_size=1", "--train.seq_len=16", "--optimizer.lr=1e-12",
                    f"--run.dir={run}", "--train.mixed_precision=fp32"], **quiet)
    subprocess.run([arguments.ottava, "export", run, "--out", hf, "--dtype=fp32"], **quiet)
    return hf


def ottava_steps(arguments, seconds):
    done = subprocess.run([arguments.ottava, "bench", "step", "--precision=fp8,bf16,fp32", "--repeats=1", "--json",
                           f"--preset={arguments.preset}", f"--batch={arguments.batch}",
                           f"--seq-len={arguments.seq_len}", f"--threads={arguments.threads}"],
                          check=True, capture_output=True)
    for result in json.loads(done.stdout)["results"]:
        seconds.setdefault("Ottava " + result["variant"], []).append(result["seconds"])


def start_workers(arguments, hf):
    workers = {}
    for name in arguments.only.split(","):
        command = [sys.executable, __file__, "--worker", name, "--folder", hf] + [
            f"--{key}={getattr(arguments, key.replace('-', '_'))}" for key in ("batch", "seq-len", "threads")]
        if arguments.compile:
            command.append("--compile")
        environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads))
        workers[name] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                         env=environment)
    for name, process in workers.items():
        if process.stdout.readline().strip() != "ready":
            sys.exit(f"compare_pytorch: the {name} process did not start")
    return workers


def measure(arguments, workers):
    seconds = {}
    for _ in range(arguments.repeats):
        ottava_steps(arguments, seconds)
        for name, process in workers.items():
            process.stdin.write("step\n")
            process.stdin.flush()
            taken, _ = process.stdout.readline().split()
            seconds.setdefault("PyTorch " + name, []).append(float(taken))
    for process in workers.values():
        process.stdin.close()
        process.wait()
    return {name: statistics.median(values) for name, values in seconds.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="42M")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ottava", default="build/release/ottava")
    parser.add_argument("--compile", action="store_true", help="PyTorch's models through torch.compile")
    parser.add_argument("--only", default="fp32,bf16,float8", help="PyTorch's contestants")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        return worker(arguments)
    with tempfile.TemporaryDirectory() as folder:
        workers = start_workers(arguments, make_weights(arguments, folder))
        medians = measure(arguments, workers)
    tokens = arguments.batch * arguments.seq_len
    print(f"{arguments.preset}, {arguments.batch} x {arguments.seq_len} tokens, {arguments.threads} threads, medians of "
          f"{arguments.repeats} steps that took turns")
    print(f"{'':18} {'tokens/s':>10} {'Ottava fp8 is ... times as fast':>32}")
    for name, taken in medians.items():
        print(f"{name:18} {tokens / taken:10.1f} {taken / medians['Ottava fp8']:32.2f}")


if __name__ == "__main__":
    main()
