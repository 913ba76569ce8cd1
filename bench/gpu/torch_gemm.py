#!/usr/bin/env python3
"""Times the matrix products of a linear layer's training in PyTorch (bf16 matmul; _scaled_mm and scaled_mm in
FP8), on Llama's shapes, for comparison with this folder's cuBLASLt probe.

    bench/gpu/torch_gemm.py --out FILE [--seconds 150] [--device cuda|cpu] [--tiny]

Y[T,N] = X[T,K] W[N,K]^T (output), dX[T,K] = dY[T,N] W[N,K] (grad_input), dW[N,K] = dY[T,N]^T X[T,K]
(grad_weight). The tensor cores need FP8 operands with a contiguous contraction, so transposed copies and
quantization are made before timing. bf16 products use X, W and dY in their original layout. Inputs are
random. Calls use several sets of inputs in turn, which together are twice as large as the L2 cache.

A result is one JSON line, appended to FILE. If PyTorch refuses a product, the result's status gives the
reason. rel_error compares the product of the quantized operands with float64 dot products at 64 places.

--tiny tests the program and measures nothing. On a CPU, which has no rowwise or block scaling, these cases
fail.
"""
import argparse
import itertools
import json
import math
import statistics
import sys
import time

try:
    import torch
    from torch.nn.functional import ScalingType, scaled_mm
except ImportError as error:
    sys.exit(f"torch_gemm: {error}; needs PyTorch 2.11 or newer: pip install torch")

TOKENS = 8192
MODELS = {  # [N,K] of each linear layer: Llama 3.1 8B, Llama 3.2 1B
    "8b": {"qkv": (6144, 4096), "o": (4096, 4096), "gate_up": (28672, 4096), "down": (4096, 14336),
           "head": (128256, 4096)},
    "1b": {"qkv": (3072, 2048), "o": (2048, 2048), "gate_up": (16384, 2048), "down": (2048, 8192),
           "head": (128256, 2048)},
}
TINY_TOKENS = 256
TINY_MODELS = {"tiny": {"o": (384, 640), "down": (128, 256)}}
GEMMS = ("output", "grad_input", "grad_weight")
RECIPES = ("bf16", "tensorwise", "rowwise", "block")
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2

WARM_UP = 3
SAMPLES, LEAST_SAMPLES, SAMPLED_SECONDS, SAMPLE_SECONDS = 15, 5, 0.3, 200e-6
MOST_SETS = 16
CHECKED = 64
MESSAGE_WIDTH = 200
QUEUE_CYCLES = 10_000_000  # the GPU waits about 5 ms, so that all calls are queued before the first starts


# ---- operands ----

class Operand:
    """An FP8 matrix [lines, depth] and the scales of its blocks: value = data * scale. Products contract
    depth."""

    def __init__(self, values, dtype, block):
        """block: lines and depth of a block; None: all lines, or the full depth."""
        lines, depth = values.shape
        self.block = (block[0] or lines, block[1] or depth)
        blocks = values.float().view(lines // self.block[0], self.block[0], depth // self.block[1],
                                     self.block[1])
        amax = blocks.abs().amax(dim=(1, 3), keepdim=True)
        largest = torch.finfo(dtype).max
        scale = largest / amax
        self.data = (blocks * scale).clamp_(-largest, largest).to(dtype).view(lines, depth)
        self.scale = scale.reciprocal().view(blocks.shape[0], blocks.shape[2])  # [lines/block, depth/block]

    def exact_rows(self, rows):
        """Returns the rows with these numbers in float64, [len(rows), depth]."""
        depth = torch.arange(self.data.shape[1], device=self.data.device) // self.block[1]
        data = self.data.view(torch.uint8)[rows].view(self.data.dtype)  # not every backend can index FP8
        return data.float().double() * self.scale[rows // self.block[0]][:, depth].double()

    @property
    def nbytes(self):
        return self.data.nbytes + self.scale.nbytes


def block_scales(operand):
    """The scales in the layout that scaled_mm requires. 1x128 blocks: [lines, depth/128], lines contiguous.
    128x128 blocks: [depth/128 rounded up to 4, lines/128], depth contiguous."""
    if operand.block[0] == 1:
        return ScalingType.BlockWise1x128, operand.scale.t().contiguous().t()
    padding = -operand.scale.shape[1] % 4
    return ScalingType.BlockWise128x128, torch.nn.functional.pad(operand.scale, (0, padding)).t()


def random_matrices(gemm, tokens, n, k, device):
    """Views of the stored operands as [lines, contraction]: A [M,contraction], B [N,contraction]."""
    def normal(*shape):
        return torch.randn(shape, dtype=torch.bfloat16, device=device)

    if gemm == "output":
        return normal(tokens, k), normal(n, k)
    if gemm == "grad_input":
        return normal(tokens, n), normal(n, k).t()
    return normal(tokens, n).t(), normal(tokens, k).t()


def operand_formats(recipe, gemm):
    """(dtype, block) of A and of B. A is grad_output in grad_input and grad_weight."""
    if recipe == "tensorwise":
        return (E4M3 if gemm == "output" else E5M2, (None, None)), (E4M3, (None, None))
    if recipe == "rowwise":
        return (E4M3, (1, None)), (E4M3, (1, None))
    return (E4M3, (1, 128)), (E4M3, (1, 128) if gemm == "grad_weight" else (128, 128))


# ---- products ----

class Product:
    """A product with several sets of inputs. run uses one set per call. exact gives the reference."""

    def __init__(self, case, device):
        self.recipe, self.fast_accum = case["recipe"], case["fast_accum"]
        first = self.make_set(case, device)
        others = needed_sets(first[0].nbytes + first[1].nbytes, device) - 1
        self.sets = [first] + [self.make_set(case, device) for _ in range(others)]

    def make_set(self, case, device):
        a, b = random_matrices(case["gemm"], case["tokens"], *case["weight"], device)
        if self.recipe == "bf16":
            return a, b
        a, b = (Operand(values.contiguous(), *format)
                for values, format in zip((a, b), operand_formats(self.recipe, case["gemm"])))
        if self.recipe == "block":
            return a, b, block_scales(a), block_scales(b)
        if self.recipe == "tensorwise":
            return a, b, a.scale.view(()), b.scale.view(())
        return a, b, a.scale, b.scale.t().contiguous()  # scales: [M,1] and [1,N]

    def run(self, turn):
        a, b, *scales = self.sets[turn % len(self.sets)]
        if self.recipe == "bf16":
            return a @ b.t()
        if self.recipe == "block":
            (type_a, scale_a), (type_b, scale_b) = scales
            return scaled_mm(a.data, b.data.t(), scale_a, type_a, scale_b, type_b,
                             output_dtype=torch.bfloat16,
                             use_fast_accum=False)
        return torch._scaled_mm(a.data, b.data.t(), scale_a=scales[0], scale_b=scales[1],
                                out_dtype=torch.bfloat16,
                                use_fast_accum=self.fast_accum)

    def exact(self, rows, columns):
        """Returns the product of the first set at these rows and columns, in float64."""
        a, b = self.sets[0][:2]
        if self.recipe == "bf16":
            return (a[rows].double() * b[columns].double()).sum(1)
        return (a.exact_rows(rows) * b.exact_rows(columns)).sum(1)


def needed_sets(set_bytes, device):
    if device.type == "cpu":
        return 1
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    return min(MOST_SETS, math.ceil(2 * cache / set_bytes))


def relative_error(product):
    """RMS of the error, divided by the RMS of the reference."""
    result = product.run(0)
    rows = torch.randint(result.shape[0], (CHECKED,), device=result.device)
    columns = torch.randint(result.shape[1], (CHECKED,), device=result.device)
    exact = product.exact(rows, columns)
    difference = result[rows, columns].double() - exact
    return (difference.square().sum() / exact.square().sum()).sqrt().item()


# ---- time ----

def timed_on_gpu(run, samples, calls):
    """Seconds per call: one number for each sample of `calls` calls."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(samples + 1)]
    torch.cuda._sleep(QUEUE_CYCLES)
    events[0].record()
    for sample in range(samples):
        for call in range(calls):
            run(sample * calls + call)
        events[sample + 1].record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) / 1e3 / calls for begin, end in itertools.pairwise(events)]


def timed_on_cpu(run, samples, calls):
    taken = []
    for sample in range(samples):
        began = time.perf_counter()
        for call in range(calls):
            run(sample * calls + call)
        taken.append((time.perf_counter() - began) / calls)
    return taken


def measure(run, device):
    """Seconds per call: 15 samples, or as many as fit into 0.3 s, but at least 5; each of at least 200 us."""
    timed = timed_on_cpu if device.type == "cpu" else timed_on_gpu
    timed(run, 1, WARM_UP)
    one = timed(run, 1, 1)[0]
    calls = max(1, math.ceil(SAMPLE_SECONDS / one))
    samples = min(SAMPLES, max(LEAST_SAMPLES, int(SAMPLED_SECONDS / (one * calls))))
    return timed(run, samples, calls)


# ---- cases ----

def list_cases(tiny):
    """All products. Block scaling is the newest, so it comes last: if it crashes, all other results exist."""
    cases = []
    for block in (False, True):
        for model, shapes in (TINY_MODELS if tiny else MODELS).items():
            for (shape, weight), gemm, recipe in itertools.product(shapes.items(), GEMMS, RECIPES):
                if (recipe == "block") != block:
                    continue
                for fast_accum in fast_accum_settings(recipe, gemm):
                    cases.append({"model": model, "shape": shape, "weight": weight, "gemm": gemm,
                                  "recipe": recipe,
                                  "fast_accum": fast_accum, "tokens": TINY_TOKENS if tiny else TOKENS})
    return cases


def fast_accum_settings(recipe, gemm):
    """Values of use_fast_accum: torchao's choice first, then the opposite. Block scaling has only False."""
    if recipe == "bf16":
        return (None,)
    if recipe == "block":
        return (False,)
    return (True, False) if gemm == "output" else (False, True)


def sizes(case):
    (n, k), t = case["weight"], case["tokens"]
    m, n, k = {"output": (t, n, k), "grad_input": (t, k, n), "grad_weight": (n, k, t)}[case["gemm"]]
    return {"M": m, "N": n, "K": k}


def run_case(case, device):
    product = Product(case, device)
    error = relative_error(product)
    taken = measure(product.run, device)
    us = statistics.median(taken) * 1e6
    return {"us": us, "us_min": min(taken) * 1e6, "us_max": max(taken) * 1e6,
            "tflops": 2e-6 * math.prod(sizes(case).values()) / us, "rel_error": error}


def try_case(case, device):
    try:
        return dict(run_case(case, device), status="ok")
    except Exception as error:  # the result's status is the error
        return {"status": (str(error).strip() or type(error).__name__).splitlines()[0][:MESSAGE_WIDTH]}


def result_of(case, device, deadline):
    named = {key: case[key] for key in ("model", "shape", "gemm", "recipe", "fast_accum")}
    if time.monotonic() >= deadline:
        measured = {"status": "not run: out of time"}
    else:
        measured = try_case(case, device)
    return dict(stage="torch_gemm", **named, **sizes(case), out_dtype="bf16", **measured)


def line_of(result):
    """The result as a line of text."""
    fast = {None: "", True: "fast", False: "full"}[result["fast_accum"]]
    name = (f"{result['model']:4} {result['shape']:8} {result['gemm']:11} {result['recipe']:10} {fast:4} "
            f"{result['M']:6} x {result['N']:6} x {result['K']:6}")
    if result["status"] != "ok":
        return f"{name}  {result['status']}"
    return f"{name}  {result['us']:9.1f} us {result['tflops']:8.1f} TFLOP/s  error {result['rel_error']:.1e}"


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="file to which the results are appended")
    parser.add_argument("--seconds", type=float, default=150, help="start no product after these seconds")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small shapes, to test the program")
    arguments = parser.parse_args()
    if arguments.device == "cpu" and not arguments.tiny:
        parser.error("--device cpu: needs --tiny; the full shapes are for a GPU")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch sees no CUDA device; --device cpu --tiny runs without one")
    return arguments


def main():
    arguments = read_arguments()
    deadline = time.monotonic() + arguments.seconds
    device = torch.device(arguments.device)
    where = {"torch": torch.__version__,
             "device": torch.cuda.get_device_name() if device.type == "cuda" else "CPU"}
    torch.manual_seed(1)
    try:
        out = open(arguments.out, "a", buffering=1)
    except OSError as error:
        sys.exit(f"torch_gemm: --out {arguments.out}: {error.strerror}; name a file that can be written")
    with out:
        for case in list_cases(arguments.tiny):
            result = result_of(case, device, deadline)
            out.write(json.dumps(dict(result, **where)) + "\n")
            print(line_of(result), flush=True)


if __name__ == "__main__":
    main()
