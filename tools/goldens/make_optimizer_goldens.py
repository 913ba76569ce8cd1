#!/usr/bin/env python3
"""Writes tests/golden/optimizers.safetensors: steps of optimizers in their authors' code, computed in
float64.

- schedule_free.<weight_lr_power>: AdamWScheduleFree of the package `schedulefree`, STEPS steps, the first
  WARMUP of them with warmup;
- muon.<rows>x<columns>.<nesterov or plain>.<adjust_lr_fn>: torch.optim.Muon, MUON_STEPS steps. Its
  Newton-Schulz products are float64 instead of bf16, so that a test can compare the definition precisely.

Each case stores `start` [rows, columns], `grad` [steps, rows * columns] and `value`, the weights after the
last step. schedule_free also stores `average`; its `value` is the point where gradients are taken.

    python tools/goldens/make_optimizer_goldens.py tests/golden
"""

import inspect
import pathlib
import sys

import schedulefree
import torch
from safetensors.torch import save_file
from torch.optim import _muon

LR, DECAY = 0.01, 0.1
STEPS, WARMUP, MUON_STEPS = 25, 7, 6
generator = torch.Generator().manual_seed(2026)


def case(rows, columns, steps):
    """Returns the start and the gradients, which are exact in fp32."""
    start = (torch.randn(rows, columns, generator=generator) * 0.5).double()
    return torch.nn.Parameter(start.clone()), start, torch.randn(steps, rows * columns,
                                                                 generator=generator).double()


def run(optimizer, parameter, grads):
    for grad in grads:
        parameter.grad = grad.reshape(parameter.shape).clone()
        optimizer.step()
    return parameter.detach().clone()


def put(out, name, start, grads, **results):
    for key, value in {"start": start, "grad": grads, **results}.items():
        out[f"{name}/{key}"] = value.float().contiguous()


def make_schedule_free(out):
    for power in (2.0, 0.0, 1.5):
        parameter, start, grads = case(12, 10, STEPS)
        optimizer = schedulefree.AdamWScheduleFree(
            [parameter], lr=LR, betas=(0.9, 0.95), eps=1e-8, weight_decay=DECAY, warmup_steps=WARMUP,
            weight_lr_power=power)
        optimizer.train()
        value = run(optimizer, parameter, grads)
        optimizer.eval()
        put(out, f"schedule_free.{power:g}", start, grads, value=value, average=parameter.detach())


def use_float64_products():
    source = inspect.getsource(_muon._zeropower_via_newtonschulz)
    assert source.count("torch.bfloat16") == 1
    exec(source.replace("torch.bfloat16", "grad.dtype"), vars(_muon))


def make_muon(out):
    use_float64_products()
    for rows, columns in ((11, 11), (6, 20), (20, 6), (42, 2)):
        for nesterov in (True, False):
            for adjust in ("original", "match_rms_adamw", "spectral_unclamped"):
                parameter, start, grads = case(rows, columns, MUON_STEPS)
                optimizer = torch.optim.Muon([parameter], lr=LR, weight_decay=DECAY, momentum=0.95,
                                             nesterov=nesterov,
                                             adjust_lr_fn=adjust)
                value = run(optimizer, parameter, grads)
                put(out, f"muon.{rows}x{columns}.{'nesterov' if nesterov else 'plain'}.{adjust}", start,
                    grads,
                    value=value)


def main():
    out = {}
    make_schedule_free(out)
    make_muon(out)
    save_file(out, pathlib.Path(sys.argv[1]) / "optimizers.safetensors")


if __name__ == "__main__":
    main()
