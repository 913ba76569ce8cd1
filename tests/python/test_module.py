"""Tests the Python module: casts, products in every accumulate mode, DLPack, training, errors."""

import ctypes
import gc
import math
import os
import pathlib
import re
import signal
import threading
import unittest
import unittest.mock

import numpy
import ottava
from ottava import _library, _program

try:
    import torch
except ImportError:
    torch = None
    print("torch is not installed: its tensors are not tested")

SMALL = {"train.max_steps": 4, "train.batch_size": 2, "train.seq_len": 32, "model.n_layers": 1,
         "model.dim": 64, "model.n_heads": 2, "model.ffn_hidden_dim": 64, "eval.enabled": False,
         "checkpoint.interval": 2, "scheduler.warmup_steps": 1}


def normal(seed, *shape):
    return numpy.random.default_rng(seed).standard_normal(shape).astype(numpy.float32)


def values_of(codes, format):
    """The values of FP8 codes, from the definition of the formats."""
    mantissa_bits, bias, special = (3, 7, 16) if format == "e4m3" else (2, 15, 31)
    table = []
    for code in range(256):
        exponent, mantissa = (code & 0x7F) >> mantissa_bits, code & ((1 << mantissa_bits) - 1)
        if exponent == special or (format == "e4m3" and code & 0x7F == 0x7F):
            value = math.nan
        elif exponent:
            value = (1 + mantissa / 2 ** mantissa_bits) * 2.0 ** (exponent - bias)
        else:
            value = mantissa / 2 ** mantissa_bits * 2.0 ** (1 - bias)
        table.append(-value if code & 0x80 else value)
    return numpy.array(table, numpy.float32)[codes]


def spread(groups, block, shape):
    """Repeats the value of each scale group for its elements."""
    groups = numpy.repeat(numpy.repeat(groups, block[0], 0), block[1], 1)
    return groups[:shape[0], :shape[1]]


class Casts(unittest.TestCase):
    def check_copy(self, q, use):
        copy = getattr(q, use)
        if copy.codes is None:
            self.assertIn(copy.format, ("fp32", "bf16", "fp16"))
            return
        inverse = copy.scale_inv
        if inverse.dtype == numpy.uint8:
            inverse = numpy.exp2(inverse.astype(numpy.float32) - 127)
        value = values_of(copy.codes, copy.format) * spread(inverse, copy.block, q.shape)
        numpy.testing.assert_array_equal(value, q.dequantize(use).numpy())

    def test_every_recipe(self):
        x = normal(0, 37, 150)
        for recipe in ottava.recipes():
            for role in ("input", "weight", "grad_output"):
                with self.subTest(recipe=recipe["name"], role=role):
                    q = ottava.quantize(x, recipe["name"], role)
                    self.check_copy(q, "rowwise")
                    self.check_copy(q, "columnwise")

    def test_groups(self):
        x = normal(1, 130, 300)
        q = ottava.quantize(x, "rowwise")
        numpy.testing.assert_array_equal(q.rowwise.amax[:, 0], abs(x).max(1))
        numpy.testing.assert_array_equal(q.columnwise.amax[0], abs(x).max(0))
        w = ottava.quantize(x, "block", "weight").rowwise
        self.assertEqual((w.block, w.scale.shape), ((128, 128), (2, 3)))
        numpy.testing.assert_array_equal(w.amax[1, 2], abs(x[128:, 256:]).max())
        mx = ottava.quantize(x, "mxfp8").rowwise
        self.assertEqual((mx.scale_inv.shape, mx.scale_inv_stored.size), ((130, 10), 2 * 3 * 512))
        self.assertEqual(mx.scale_inv[129, 9], mx.scale_inv_stored[(1 * 3 + 2) * 512 + 1 * 16 + 0 * 4 + 1])

    def test_casts_by_words(self):
        x = numpy.array([[448, -500, 2.0 ** -9, 0.3, numpy.inf, numpy.nan]], numpy.float32)
        codes = ottava.cast(x, "e4m3 unit").codes
        self.assertEqual(codes.tolist()[0][:5], [0x7E, 0xFE, 0x01, 0x2A, 0x7E])
        for words in ("e5m2", "e4m3 row pow2", "e5m2 1x128 te", "e4m3 128x128", "e4m3 1x32 e8m0"):
            self.assertEqual(ottava.cast(normal(2, 3, 140), words).format, words[:4])

    def test_delayed(self):
        q = ottava.quantize(normal(3, 8, 8), "delayed")
        self.assertEqual(q.rowwise.scale[0, 0], 1)
        q.update_scale()
        amax = abs(normal(3, 8, 8)).max()
        self.assertEqual(q.quantize(normal(4, 8, 8)).rowwise.scale[0, 0], numpy.float32(448) / amax)

    def test_statistics(self):
        s = ottava.quantize(normal(5, 64, 64), "tensorwise").statistics("columnwise")
        self.assertTrue(25 < s["sqnr_db"] < 45 and s["saturated"] == 0, s)

    def test_lifetimes(self):
        """A view keeps the memory of the quantized tensor."""
        codes = ottava.quantize(normal(6, 50, 60), "rowwise").rowwise.codes
        before = codes.copy()
        gc.collect()
        others = [ottava.quantize(normal(7, 50, 60), "rowwise") for _ in range(20)]
        numpy.testing.assert_array_equal(before, codes)
        self.assertEqual(len(others), 20)


class Products(unittest.TestCase):
    x, w, g = normal(0, 37, 150), normal(1, 20, 150), normal(2, 37, 20)

    def test_every_recipe_and_mode(self):
        operands = {"output": (self.x, self.w, self.x @ self.w.T),
                    "grad_input": (self.g, self.w, self.g @ self.w),
                    "grad_weight": (self.g, self.x, self.g.T @ self.x)}
        for recipe in (row["name"] for row in ottava.recipes()):
            high = recipe in ("fp32", "bf16", "fp16")
            for mode in (None,) if high else (None, "fp32", "tile32", "hopper_fast", "hopper_split"):
                for gemm, (a, b, exact) in operands.items():
                    with self.subTest(recipe=recipe, mode=mode, gemm=gemm):
                        y = ottava.product(a, b, recipe, gemm, mode, "fp32").numpy()
                        error = numpy.linalg.norm(y - exact) / numpy.linalg.norm(exact)
                        self.assertLess(error, 0.005 if high else 0.09)

    def test_bits(self):
        """The fp32 mode adds the products in order, then multiplies by both scales."""
        a, b = ottava.quantize(self.x, "tensorwise"), ottava.quantize(self.w, "tensorwise", "weight")
        left, right = values_of(a.rowwise.codes, "e4m3"), values_of(b.rowwise.codes, "e4m3")
        total = numpy.zeros((37, 20), numpy.float32)
        for k in range(150):
            exact = total.astype(numpy.float64) + numpy.outer(left[:, k], right[:, k]).astype(numpy.float64)
            total = exact.astype(numpy.float32)
        expected = total * (a.rowwise.scale_inv * b.rowwise.scale_inv)
        numpy.testing.assert_array_equal(ottava.product(a, b, dtype="fp32").numpy(), expected)

    def test_out_and_bias(self):
        bias, out = normal(3, 20), numpy.ones((37, 20), numpy.float32)
        y = ottava.product(self.x, self.w, dtype="fp32").numpy()
        ottava.product(self.x, self.w, out=out, add=True)
        numpy.testing.assert_array_equal(out, y + 1)
        ottava.product(self.x, self.w, out=out, bias=bias)
        numpy.testing.assert_array_equal(out, y + bias)
        with self.assertRaisesRegex(ValueError, "contiguous"):
            ottava.product(self.x, self.w, out=numpy.ones((20, 37), numpy.float32).T)
        out.flags.writeable = False
        with self.assertRaisesRegex(ValueError, "written"):
            ottava.product(self.x, self.w, out=out)


class Arrays(unittest.TestCase):
    def test_numpy(self):
        x = normal(0, 30, 40)
        self.assertEqual(ottava.tensor(x).numpy().ctypes.data, x.ctypes.data)  # no copy
        numpy.testing.assert_array_equal(ottava.quantize(x.T, "rowwise").rowwise.codes,
                                         ottava.quantize(x.T.copy(), "rowwise").rowwise.codes)
        numpy.testing.assert_array_equal(numpy.from_dlpack(ottava.tensor(x)), x)
        half = ottava.tensor(x.astype(numpy.float16)).convert("fp32").numpy()
        numpy.testing.assert_array_equal(half, x.astype(numpy.float16))

    def test_import_dlpack(self):
        class Other:  # another package's tensor, with strides
            def __init__(self, array):
                self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

        x = normal(1, 30, 40)
        self.assertEqual(ottava.tensor(Other(x)).numpy().ctypes.data, x.ctypes.data)
        for y in (x[:, ::3], x[::-1, ::-2], x[5:6].T, x[:0]):
            numpy.testing.assert_array_equal(ottava.tensor(Other(y)).numpy(), y)
        capsule = ottava.tensor(x).__dlpack__()
        del capsule, x  # never taken
        gc.collect()

    @unittest.skipUnless(torch, "torch is not installed")
    def test_torch(self):
        x = torch.from_numpy(normal(2, 30, 40)).bfloat16()
        t = ottava.tensor(x)
        self.assertEqual(t.dtype, "bf16")
        back = torch.from_dlpack(t)
        self.assertEqual((back.data_ptr(), back.dtype), (x.data_ptr(), torch.bfloat16))
        numpy.testing.assert_array_equal(t.numpy(), x.float().numpy())
        numpy.testing.assert_array_equal(ottava.quantize(x.t(), "rowwise").rowwise.codes,
                                         ottava.quantize(x.t().contiguous(), "rowwise").rowwise.codes)
        y = torch.from_dlpack(ottava.product(x, x))
        self.assertEqual((y.dtype, tuple(y.shape)), (torch.bfloat16, (30, 30)))

    def test_errors(self):
        x = normal(3, 4, 6)
        with self.assertRaisesRegex(TypeError, "float64"):
            ottava.quantize(x.astype(numpy.float64))
        with self.assertRaisesRegex(ValueError, "matrix"):
            ottava.quantize(x[0])
        with self.assertRaisesRegex(ValueError, "gradient"):
            ottava.quantize(x, role="gradient")
        with self.assertRaisesRegex(ottava.Error, "did you mean \"rowwise\"") as caught:
            ottava.quantize(x, "rowise")
        self.assertEqual(caught.exception.status, "ERR_CONFIG")
        with self.assertRaises(ottava.Error) as caught:
            ottava.product(x, normal(4, 3, 5))
        self.assertEqual(caught.exception.status, "ERR_SHAPE")
        with self.assertRaisesRegex(ottava.Error, "accumulate"):
            ottava.product(x, x, accumulate="fp64")

    def test_context(self):
        recipe = ottava.Recipe("rowwise", ottava.Context(threads=1))
        x = normal(6, 40, 50)
        y = ottava.product(x, x, recipe, bias=x[:, 0]).numpy()
        numpy.testing.assert_array_equal(y, ottava.product(x, x, "rowwise", bias=x[:, 0]).numpy())

    def test_structs(self):
        """The module's structs have the members of the headers, in their order."""
        headers = (pathlib.Path(__file__).parents[2] / "include/ottava").glob("*.h")
        text = re.sub(r"/\*.*?\*/", "", "".join(h.read_text(encoding="utf-8") for h in headers), flags=re.S)
        for name, struct in (("context_options", _library.ContextOptions), ("qdata", _library.QData),
                             ("statistics", _library.Statistics), ("train_options", _library.TrainOptions),
                             ("operand", _library.Operand), ("progress", _library.Progress),
                             ("loss_batch", _library.LossBatch)):
            found = re.search(r"typedef struct ott_%s \{(.*?)\} ott_%s;" % (name, name), text, re.S)
            members = re.sub(r"\(\*(\w+)\)\([^;]*", r"\1", found.group(1))  # functions
            self.assertEqual(re.findall(r"(\w+)(?=[,;])", members), [f[0] for f in struct._fields_], name)

    def test_threads(self):
        x, results = normal(5, 64, 64), []
        threads = [threading.Thread(target=lambda: results.append(ottava.product(x, x).numpy()))
                   for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len({r.tobytes() for r in results}), 1)
        self.assertEqual(len(results), 8)


class Training(unittest.TestCase):
    def train(self, folder, **options):
        return ottava.train("configs/debug.toml", {**SMALL, "run.dir": folder}, **options)

    def test_callbacks(self):
        steps, records, lines = [], [], []
        run = self.train("a", on_step=steps.append, on_metrics=records.append,
                         log=lambda level, text: lines.append((level, text)))
        self.assertEqual([step.step for step in steps], [1, 2, 3, 4])
        self.assertEqual([r["loss"] for r in records], [r["loss"] for r in run.metrics()])
        self.assertEqual([numpy.float32(r["loss"]) for r in records], [numpy.float32(s.loss) for s in steps])
        self.assertEqual(run.summary()["steps"], 4)
        self.assertIn("info", {level for level, _ in lines})

    def test_default_folder(self):
        records = []
        run = ottava.train("configs/debug.toml", SMALL, on_metrics=records.append)
        self.assertEqual(run.folder.parent, pathlib.Path("runs"))
        self.assertEqual([r["step"] for r in records], [1, 2, 3, 4])

    def test_stop(self):
        run = self.train("b", on_step=lambda step: step.step < 2)
        self.assertEqual([r["step"] for r in run.metrics()], [1, 2])
        records = []
        run = ottava.train("configs/debug.toml", {**SMALL, "run.dir": "b", "checkpoint.load_path": "latest"},
                           on_metrics=records.append)
        self.assertEqual([r["step"] for r in records], [3, 4])
        self.assertEqual([r["loss"] for r in run.metrics()], [r["loss"] for r in self.train("c").metrics()])

    def test_exception(self):
        def fail(step):
            if step.step == 2:
                raise KeyError("mine")

        with self.assertRaisesRegex(KeyError, "mine"):
            self.train("d", on_step=fail)
        self.assertEqual(ottava.Run("d").metrics()[-1]["step"], 2)
        with self.assertRaisesRegex(ottava.Error, "did you mean train.max_steps"):
            ottava.train("configs/debug.toml", {"train.max_step": 3})
        with self.assertRaisesRegex(ottava.Error, "missing.toml"):
            ottava.train("missing.toml")

    def test_ctrl_c(self):
        def press(step):
            if step.step == 2:
                os.kill(os.getpid(), signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            self.train("h", on_step=press)
        self.assertEqual(ottava.Run("h").summary()["steps"], 2)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_loss(self):
        def cross_entropy(b):
            rows = numpy.arange(len(b.target))
            p = b.logits.astype(numpy.float64)
            p = numpy.exp(p - p.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            b.loss[:] = numpy.where(b.target >= 0, -numpy.log(p[rows, b.target]), 0)
            if b.training:
                p[rows, b.target] -= 1
                b.logits[:] = p * (b.target >= 0)[:, None]

        own, same = self.train("e", loss=cross_entropy).metrics(), self.train("f").metrics()
        numpy.testing.assert_allclose([r["loss"] for r in own], [r["loss"] for r in same], rtol=1e-4)

    def test_damaged_metrics(self):
        pathlib.Path("g").mkdir()
        pathlib.Path("g/metrics.jsonl").write_text('{"step": 1}\n{"ste\n{"step": 2}\n', encoding="utf-8")
        self.assertEqual([r["step"] for r in ottava.Run("g").metrics()], [1, 2])


class Files(unittest.TestCase):
    @unittest.mock.patch.dict(os.environ)
    @unittest.mock.patch("os.execv")
    @unittest.mock.patch("os.path.exists", lambda path: path == "/etc/pki/tls/certs/ca-bundle.crt")
    def test_program(self, execv):
        """The program of the wheel finds the certificates of other distributions than Debian."""
        os.environ.pop("SSL_CERT_FILE", None)
        _program.main()
        self.assertTrue(execv.call_args[0][0].endswith("/ottava/bin/ottava"))
        self.assertEqual(os.environ["SSL_CERT_FILE"], "/etc/pki/tls/certs/ca-bundle.crt")

    def test_page(self):
        """docs/reference/python.md names everything that is public."""
        page = (pathlib.Path(__file__).parents[2] / "docs/reference/python.md").read_text(encoding="utf-8")
        for name in ottava.__all__:
            self.assertRegex(page, rf"`{name}\b", name)

    def test_configs(self):
        package = pathlib.Path(ottava.__file__).parent / "configs"
        if not package.exists():  # the module of the source tree
            with self.assertRaisesRegex(FileNotFoundError, "wheel"):
                ottava.copy_configs("copied")
            return
        self.assertTrue((ottava.copy_configs("copied") / "text/genesis.txt").exists())
        with self.assertRaises(FileExistsError):
            ottava.copy_configs("copied")


if __name__ == "__main__":
    unittest.main()
