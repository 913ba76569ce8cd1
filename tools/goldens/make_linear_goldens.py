#!/usr/bin/env python3
"""Writes tests/golden/linear_<recipe>.safetensors: the results of torchao's Float8Linear.

Each file has a few cases (shape and high-precision dtype). A case holds:

- input X[M,K], the fp32 weight W[N,K] and grad_output G[M,N];
- amax, scale and FP8 codes of every cast in one forward and backward. A wrapper of torchao's cast function
  records them, so a case has only the casts that the recipe makes;
- output, grad_input and grad_weight. The GEMMs are torchao's emulated GEMMs, so no GPU is needed.

Codes are stored in the layout of X, W and G, not transposed. The cast "row" is contracted along rows, the
cast "column" along columns.

    python tools/goldens/make_linear_goldens.py tests/golden
"""

import pathlib
import sys
from dataclasses import replace

import torch
import torchao
from safetensors.torch import save_file
from torchao.float8 import Float8LinearConfig, convert_to_float8_training, float8_linear
from torchao.float8.float8_utils import tensor_to_amax

RECIPES = ("tensorwise", "rowwise", "rowwise_with_gw_hp")
# name, dtype of activations, M, K, N. In the second case M and K are odd sizes; the third has one token.
CASES = (
    ("bf16", torch.bfloat16, 48, 64, 80),
    ("fp32", torch.float32, 37, 40, 48),
    ("token", torch.bfloat16, 1, 24, 16),
)
ROLES = {"INPUT": "input", "WEIGHT": "weight", "GRAD_OUTPUT": "grad_output"}


def hostile(rows, columns, std, generator):
    """Returns normal numbers with values that scale rules can fail on: zero, tiny and huge rows and columns,
    and single outliers."""
    x = torch.randn(rows, columns, generator=generator) * std
    if rows < 4:
        x[0, 0], x[0, 1] = 0.0, 200.0 * std
        return x
    x[1] = 0.0  # a row of zeros
    x[2] *= 1e-14  # a row whose amax is below the smallest amax of torchao's rule
    x[3] *= 1e-5  # a row that a tensorwise scale flushes to zero
    x[rows // 2] *= 3e3  # the row with the largest values, which determines a tensorwise scale
    x[:, 1] = 0.0  # a column of zeros
    x[:, 2] *= 1e-14
    x[:, 3] *= 1e-5
    x[rows - 1, columns - 1] = -700.0 * std  # an outlier
    x[rows - 2, 0] = -0.0
    return x


class CastRecorder:
    """Replaces the cast function of Float8Linear, and keeps the results of each call."""

    def __init__(self):
        self.original = float8_linear.hp_tensor_to_float8_dynamic
        self.seen = {}

    def __enter__(self):
        float8_linear.hp_tensor_to_float8_dynamic = self
        return self

    def __exit__(self, *_):
        float8_linear.hp_tensor_to_float8_dynamic = self.original

    def __call__(self, hp, dtype, mm_config, **options):
        q = self.original(hp, dtype, mm_config, **options)
        amax = tensor_to_amax(
            hp, scaling_granularity=options["scaling_granularity"], axiswise_dim=options["axiswise_dim"]
        )
        role = ROLES[options["gemm_input_role"].name]
        # The first cast of a tensor is along rows: in forward, or for grad_input, which is computed before
        # grad_weight.
        side = "column" if f"{role}.row.codes" in self.seen else "row"
        codes = q._data.t() if role == "weight" else q._data  # the cast gets W^T as weight
        self.seen[f"{role}.{side}.codes"] = codes
        self.seen[f"{role}.{side}.scale"] = q._scale.reshape(-1)
        self.seen[f"{role}.{side}.amax"] = amax.float().reshape(-1)
        return q


def is_power_of_two_by_mask(amax, scale, top):
    """True if clearing the mantissa of top / amax gives this scale."""
    full = (top / amax.double().clamp(min=1e-12)).float()
    return torch.equal((full.view(torch.int32) & -0x800000).view(torch.float32), scale)


def check_powers_of_two(name, seen):
    """Refuses goldens on which torchao's rounding differs from clearing the mantissa, as Ottava does.
    torchao rounds scales down by exp2(floor(log2)), which rounds up for a few fp32 amaxes in a million."""
    for key in [k for k in seen if k.endswith(".scale")]:
        codes, amax = seen[key.replace("scale", "codes")], seen[key.replace("scale", "amax")]
        if not is_power_of_two_by_mask(amax, seen[key], torch.finfo(codes.dtype).max):
            raise SystemExit(f"{name}: {key} is rounded up by log2; choose another seed")


def make_case(recipe, dtype, m, k, n, seed):
    generator = torch.Generator().manual_seed(seed)
    config = replace(Float8LinearConfig.from_recipe_name(recipe), emulate=True)
    weight = hostile(n, k, k**-0.5, generator)
    x = hostile(m, k, 1.0, generator).to(dtype).requires_grad_()
    g = hostile(m, n, 1e-3, generator).to(dtype)
    model = torch.nn.Sequential(torch.nn.Linear(k, n, bias=False))
    model[0].weight = torch.nn.Parameter(weight)
    convert_to_float8_training(model, config=config)
    with CastRecorder() as recorder:
        y = model(x)
        y.backward(g)
    if config.round_scales_to_power_of_2:
        check_powers_of_two(recipe, recorder.seen)
    # Float8Linear computes grad_weight in grad_output's dtype; autograd widens it to the weight's.
    return dict(
        recorder.seen,
        input=x.detach(),
        weight=weight,
        grad_output=g,
        output=y.detach(),
        grad_input=x.grad,
        grad_weight=model[0].weight.grad.to(dtype),
    )


def main(folder):
    torch.set_num_threads(1)
    # The metadata have only one entry: several entries would be written in varying order, and the file must
    # be reproducible.
    made_with = f"torch {torch.__version__}, torchao {torchao.__version__}"
    for recipe in RECIPES:
        tensors = {}
        for i, (name, dtype, m, k, n) in enumerate(CASES):
            case = make_case(recipe, dtype, m, k, n, seed=1000 + i)
            tensors |= {f"{name}/{key}": value.detach().contiguous() for key, value in case.items()}
        path = folder / f"linear_{recipe}.safetensors"
        save_file(tensors, path, metadata={"made_with": made_with})
        print(f"{path}: {len(tensors)} tensors, {path.stat().st_size} bytes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(pathlib.Path(sys.argv[1]))
