"""Training from a configuration, with callbacks, and the files of a run folder."""

import collections
import contextlib
import ctypes
import json
import pathlib
import signal
import threading

import numpy

from ._library import OK, Context, Error, LossFn, Progress, ProgressFn, TrainOptions, lib

Step = collections.namedtuple("Step", [name for name, _ in Progress._fields_])
Step.__doc__ = """A step that is done: step, max_steps, loss (mean of the step's tokens, in nats),
validation_loss (of the last validation; NaN before the first one), learning_rate, grad_norm,
tokens_per_second, seconds_left."""

LossBatch = collections.namedtuple("LossBatch", "token target position training logits loss")
LossBatch.__doc__ = """A micro-batch of T tokens for a loss function. The arrays are valid during the call.

token, target, position: int32 [T]: the tokens that the model read, the tokens to predict (negative: none),
    and the positions in their documents.
training: False in a validation.
logits: float32 [T, vocabulary]. In training the function overwrites them with the gradient of sum(loss).
loss: float32 [T]: the output, in nats."""


class Run:
    """A run folder: config.toml, metrics.jsonl, summary.json, checkpoints."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def __repr__(self):
        return f"ottava.Run({str(self.folder)!r})"

    def metrics(self):
        """Returns the records of metrics.jsonl as dicts: "step", "loss", "grad_norm", "lr" and others.
        Damaged lines are skipped."""
        return list(_records(self.folder / "metrics.jsonl"))

    def summary(self):
        """Returns summary.json as a dict: "train_loss", "val_loss", "fp8_gemms" and others."""
        return json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))


def _records(path):
    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                pass


class _Tail:
    """Yields the records that a run has added to metrics.jsonl since the last call."""

    def __init__(self):
        self.at, self.first = 0, None

    def __call__(self, path, step):
        if self.first is None:
            self.first = step  # a resumed run keeps the older records
        if not path.exists():
            return
        with open(path, "rb") as file:
            file.seek(self.at)
            for line in file.read().splitlines(keepends=True):
                if not line.endswith(b"\n"):
                    return
                self.at += len(line)
                record = json.loads(line)
                if record.get("step", self.first) >= self.first:
                    yield record


class _Config:
    """The configuration that a file and overrides give."""

    def __init__(self, context, words):
        arguments = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
        self.context = context
        self.handle = context.open(self, lib.ott_config_open, lib.ott_config_close, context.handle,
                                   len(words), arguments)

    def get(self, key):
        """The value of a key as TOML, which for texts, numbers and Booleans is also JSON."""
        return json.loads(self.context.text(lib.ott_config_get, self.handle, key.encode()))


def _word(value):
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, (list, tuple)) else str(value)


def _array(pointer, *shape):
    return numpy.ctypeslib.as_array(pointer, shape)


class _Training:
    """The callbacks of one run. An exception in a callback stops the run; train() raises it again."""

    def __init__(self, config, on_step, on_metrics, loss):
        self.context, self.config = config.context, config
        self.on_step, self.on_metrics, self.loss = on_step, on_metrics, loss
        self.error = self.last = None  # the exception of a callback; the last step that was done
        self.tail = _Tail()
        self.options = TrainOptions()
        self.options.progress = ProgressFn(lambda _, step: self.guard(self.step, step.contents))
        if loss:
            self.options.loss = LossFn(lambda _, batch: self.guard(self.evaluate, batch.contents))

    def guard(self, function, argument):
        try:
            if self.error is None:
                function(argument)
        except BaseException as error:  # ctypes would print it and drop it
            self.error = error
        if self.error is not None:
            self.context.stop()
        return OK

    def run(self):
        """The run. If run.dir is empty, the library sets it when the run begins."""
        return Run(self.config.get("run.dir"))

    def step(self, progress):
        self.last = progress.step
        self.report()
        if self.on_step and self.on_step(Step(*(getattr(progress, name) for name in Step._fields))) is False:
            self.context.stop()

    def report(self):
        if self.on_metrics and self.last is not None:
            for record in self.tail(self.run().folder / "metrics.jsonl", self.last):
                self.on_metrics(record)

    def evaluate(self, b):
        tokens = b.sequences * b.length
        ids = [_array(pointer, tokens) for pointer in (b.token, b.target, b.position)]
        outputs = _array(b.logits, tokens, b.vocab), _array(b.loss, tokens)
        self.loss(LossBatch(*ids, bool(b.training), *outputs))


@contextlib.contextmanager
def _ctrl_c(training):
    """Ctrl-C ends the run. Python's own handler would raise KeyboardInterrupt at the beginning of a callback,
    where ctypes prints it and drops it."""
    def stop(*_):
        training.error = KeyboardInterrupt()
        training.context.stop()

    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def train(config=None, overrides=None, on_step=None, on_metrics=None, loss=None, log=None, threads=0):
    """Trains the model of a configuration, as `ottava train` does, and returns its Run.

    config: a TOML or YAML file; None: only overrides. overrides: a dict of keys and values, such as
        {"train.max_steps": 20, "float8.recipe_name": "rowwise"}.
    on_step: called with a Step after every step; if it returns False, the run saves the step and ends.
    on_metrics: called with each new record of metrics.jsonl, a dict.
    loss: your loss function instead of cross-entropy; called with a LossBatch for each micro-batch.
    log: called with the level and the text of each log line, for example lambda level, text: print(text).
    An exception in a callback, and Ctrl-C, end the run as on_step does, and are raised again."""
    context = Context(threads, log)
    words = [str(config)] if config is not None else []
    words += [f"--{key}={_word(value)}" for key, value in (overrides or {}).items()]
    values = _Config(context, words)
    training = _Training(values, on_step, on_metrics, loss)
    try:
        with _ctrl_c(training):
            context.call(lib.ott_train, context.handle, values.handle, training.options)
    except Error:
        if training.error is None:
            raise
    if training.error is not None:
        raise training.error
    training.report()
    return training.run()
