#!/usr/bin/env python3
"""Compares Ottava's casts and products with torchao's and PyTorch's, on random tensors and on edge cases.

    pip install build/package/ottava-*.whl torch torchao
    tools/compare_torchao.py [--tensors 1000] [--products 20]

Prints for each recipe how many codes and scales were compared, and how many differ. NaNs are equal to NaNs.
docs/reference/python.md explains the differences on edge cases. Exit code 1 if a random tensor differs.
"""

import argparse
import sys

import numpy
import ottava
import torch
from torchao.float8.config import Float8LinearConfig, ScalingType
from torchao.float8.float8_scaling_utils import get_maybe_axiswise_dim, hp_tensor_to_float8_dynamic
from torchao.float8.float8_training_tensor import LinearMMConfig
from torchao.prototype.blockwise_fp8_training import kernels as blockwise
from torchao.prototype.mx_formats.config import ScaleCalculationMode
from torchao.prototype.mx_formats.mx_tensor import to_mx

RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
FP8 = torch.float8_e4m3fn
# The fields of Float8LinearConfig, and the role and the use that they configure.
OPERANDS = (("input", "input", "rowwise"), ("input_for_grad_weight", "input", "columnwise"),
            ("weight", "weight", "rowwise"), ("weight_for_grad_input", "weight", "columnwise"),
            ("grad_output", "grad_output", "rowwise"),
            ("grad_output_for_grad_weight", "grad_output", "columnwise"))


def bits(x):
    """The bits of a tensor as a NumPy array, without dimensions of size 1."""
    return x.contiguous().view({1: torch.uint8, 4: torch.int32}[x.element_size()]).numpy()


def is_nan(codes, format):
    return (codes & 0x7F) > 0x7C if format == "e5m2" else (codes & 0x7F) == 0x7F


class Count:
    """Numbers of compared and different codes and scales of one recipe."""

    def __init__(self):
        self.tensors = self.codes = self.scales = self.bad_codes = self.bad_scales = 0

    def add(self, copy, codes, scale, own_scale):
        """copy: Ottava's copy. codes, scale: torchao's. own_scale: Ottava's scale of the same kind."""
        codes, scale = bits(codes), bits(scale).reshape(own_scale.shape)
        own_scale = numpy.ascontiguousarray(own_scale)
        same = (copy.codes == codes) | (is_nan(copy.codes, copy.format) & is_nan(codes, copy.format))
        same_scale = own_scale.view(scale.dtype) == scale
        if scale.dtype == numpy.int32:  # every NaN is equal
            same_scale |= numpy.isnan(own_scale) & numpy.isnan(scale.view(numpy.float32))
        self.tensors += 1
        self.codes, self.scales = self.codes + same.size, self.scales + same_scale.size
        self.bad_codes += int((~same).sum())
        self.bad_scales += int((~same_scale).sum())

    def text(self):
        return (f"{self.tensors:>6,} copies  {self.codes:>12,} codes: {self.bad_codes} differ  "
                f"{self.scales:>10,} scales: {self.bad_scales} differ")


# ---- casts ----

def compare_float8(x, recipe, count):
    """torchao.float8, for all operands of a recipe."""
    config = Float8LinearConfig.from_recipe_name(recipe)
    for field, role, use in OPERANDS:
        cast = getattr(config, "cast_config_" + field)
        copy = getattr(ottava.quantize(x, recipe, role), use)
        if cast.scaling_type is ScalingType.DISABLED:
            assert copy.codes is None, (recipe, field)
            continue
        other = hp_tensor_to_float8_dynamic(
            x, cast.target_dtype, LinearMMConfig(), scaling_granularity=cast.scaling_granularity,
            axiswise_dim=get_maybe_axiswise_dim(-1 if use == "rowwise" else 0, cast.scaling_granularity),
            round_scales_to_power_of_2=config.round_scales_to_power_of_2)
        count.add(copy, other._data, other._scale, copy.scale)


def compare_mx(x, rule, mode, count):
    """torchao's MXFP8, rowwise and columnwise. It takes multiples of 32 only."""
    q = ottava.quantize(x, ottava.Recipe("mxfp8", mx_scale=rule))
    scale, codes = to_mx(x, FP8, 32, mode)
    count.add(q.rowwise, codes, scale, q.rowwise.scale_inv)
    scale, codes = to_mx(x.t().contiguous(), FP8, 32, mode)
    count.add(q.columnwise, codes.t(), scale.t(), q.columnwise.scale_inv)


def compare_block(x, count):
    """torchao's prototype of DeepSeek's blocks, with scales in fp32. It takes multiples of 128 only.

    Columns are converted to fp32, because in bf16 torchao rounds its lower bound of amax, 1e-12, to bf16."""
    recipe = ottava.Recipe("custom", input="e4m3 1x128", weight="e4m3 128x128", grad_output="e4m3 1x128")
    q = ottava.quantize(x, recipe, "input")
    count.add(q.rowwise, *blockwise.torch_blockwise_scale_act_quant_lhs(x), q.rowwise.scale_inv)
    count.add(q.columnwise, *blockwise.torch_blockwise_scale_act_quant_rhs(x.float()), q.columnwise.scale_inv)
    w = ottava.quantize(x, recipe, "weight").rowwise
    count.add(w, *blockwise.torch_blockwise_scale_weight_quant(x), w.scale_inv)


def compare(x, counts):
    """All recipes on one tensor. Sizes that torchao does not take are rounded up, with repeated elements."""
    def padded(multiple):
        sizes = [size + -size % multiple for size in x.shape]
        repeats = [-(-size // have) for size, have in zip(sizes, x.shape)]
        return x.repeat(repeats)[:sizes[0], :sizes[1]].contiguous()

    for recipe in RECIPES:
        compare_float8(x, recipe, counts.setdefault(recipe, Count()))
    for rule, mode in (("roundup", ScaleCalculationMode.RCEIL), ("floor", ScaleCalculationMode.FLOOR)):
        compare_mx(padded(32), rule, mode, counts.setdefault(f"mxfp8, mx_scale={rule}", Count()))
    compare_block(padded(128), counts.setdefault("blocks 1x128, 128x1, 128x128", Count()))


def random_tensor(i):
    """The i-th random tensor, in fp32 or bf16, of random sizes and magnitude; some with outliers or zeros."""
    draw = torch.Generator().manual_seed(i)
    rows, columns = (int(torch.randint(1, 200, (), generator=draw)) for _ in range(2))
    x = torch.randn(rows, columns, generator=draw)
    x *= 10.0 ** float(torch.empty(()).uniform_(-9, 9, generator=draw))
    if i % 4 >= 2:
        x *= torch.exp(3 * torch.randn(rows, columns, generator=draw))  # outliers
    if i % 8 >= 4:
        x[torch.rand(rows, columns, generator=draw) < 0.3] = 0
        x[int(torch.randint(0, rows, (), generator=draw))] = 0
    return x if i % 2 else x.bfloat16()


def edge_cases():
    x = torch.randn(64, 96, generator=torch.Generator().manual_seed(0))
    yield "zeros", torch.zeros(5, 7)
    yield "zeros of bf16", torch.zeros(5, 7).bfloat16()
    yield "negative zeros", -torch.zeros(5, 7)
    yield "denormals of fp32", x * 1e-41
    yield "magnitudes around 1e-12", x * 1e-12
    yield "denormals of bf16", (x * 1e-39).bfloat16()
    yield "largest fp32", x.sign() * torch.finfo(torch.float32).max
    ties = torch.arange(-448, 449, dtype=torch.float32).repeat(2, 1) / 16
    yield "ties of E4M3", torch.cat([ties, torch.full((2, 1), 448.0)], 1)
    yield "powers of two", 2.0 ** torch.arange(-126, 128, dtype=torch.float32).repeat(3, 1)
    near = torch.tensor([448.0 * 2.0 ** k for k in range(-60, 60)]).view(torch.int32)
    near = torch.cat([near - 1, near, near + 1]).view(torch.float32)
    yield "448 * 2^k and its neighbours", near.reshape(-1, 1).repeat(1, 3)
    for name, value in (("an infinity", float("inf")), ("a NaN", float("nan"))):
        y = x.clone()
        y[3, 4] = value
        yield name, y


# ---- products ----

MODES = ("fp32", "tile32", "hopper_fast", "hopper_split")
FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16}


def draw_operand(seed, rows, columns, recipe, role):
    """A random quantized tensor, and its codes and scale_inv as torch's tensors."""
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    q = ottava.quantize(x, recipe, role)
    scale = torch.from_numpy(q.rowwise.scale_inv)
    return q, torch.from_numpy(q.rowwise.codes).view(FP8), scale if recipe == "rowwise" else scale.reshape(())


def compare_product(seed, recipe, format, equal, error):
    """Adds up the results that equal torch's, and the largest error as a fraction of the largest result."""
    draw = torch.Generator().manual_seed(seed)
    m, k, n = (16 * int(torch.randint(1, 33, (), generator=draw)) for _ in range(3))
    a, left, scale_a = draw_operand(2 * seed, m, k, recipe, "input")
    b, right, scale_b = draw_operand(2 * seed + 1, n, k, recipe, "weight")
    y = torch._scaled_mm(left, right.t(), scale_a, scale_b.t(), out_dtype=FORMATS[format])
    exact = (left.double() @ right.double().t()) * scale_a.double() * scale_b.double().t()
    results = {f"Ottava {mode}": torch.from_dlpack(ottava.product(a, b, accumulate=mode, dtype=format))
               for mode in MODES}
    results["torch: fp32 product of dequantized operands"] = (
        (left.float() * scale_a) @ (right.float() * scale_b).t()).to(FORMATS[format])
    results["torch._scaled_mm"] = y
    for name, own in results.items():
        equal[name] = equal.get(name, 0) + int((own == y).sum())
        worst = (own.double() - exact).abs().max() / exact.abs().max()
        error[name] = max(error.get(name, 0), worst.item())
    return y.numel()


def compare_products(number):
    """torch._scaled_mm on the CPU, with Ottava's codes and scales, and Ottava in each accumulate mode."""
    for recipe in ("tensorwise", "rowwise"):
        for format in FORMATS:
            equal, error = {}, {}
            count = sum(compare_product(i, recipe, format, equal, error) for i in range(number))
            print(f"  {recipe}, result in {format}, {number} products, {count:,} results:")
            for name in equal:
                print(f"    {name:44} {equal[name] / count:9.4%} equal torch._scaled_mm's; "
                      f"error at most {error[name]:.2e}")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--tensors", type=int, default=1000)
    options.add_argument("--products", type=int, default=20)
    options = options.parse_args()
    counts = {}
    for i in range(options.tensors):
        compare(random_tensor(i), counts)
    print(f"{options.tensors} random tensors:")
    for recipe, count in counts.items():
        print(f"  {recipe:30}{count.text()}")
    print("Edge cases (recipes in which nothing differs are left out):")
    for name, x in edge_cases():
        edges = {}
        compare(x, edges)
        worse = {recipe: count for recipe, count in edges.items() if count.bad_codes or count.bad_scales}
        print(f"  {name}: {'all equal' if not worse else ''}")
        for recipe, count in worse.items():
            print(f"    {recipe:30}{count.text()}")
    print("Products on the CPU, torch._scaled_mm and Ottava:")
    compare_products(options.products)
    return any(count.bad_codes or count.bad_scales for count in counts.values())


if __name__ == "__main__":
    sys.exit(main())
