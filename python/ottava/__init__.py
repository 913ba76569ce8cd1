from ._library import Context, Error, lib as _lib
from .fp8 import Copy, Quantized, Recipe, Tensor, cast, empty, product, quantize, recipes, tensor
from .training import LossBatch, Run, Step, train
