/* Tests every error of a configuration. Each message is one line. */
#include "config/case.h"
#include <stdio.h>

static void test_choice(void **state) {
    config_case *c = *state;
    char wanted[256];
    static const char text[] = "# precision\n[train]\nmixed_precision = \"FP8\"\n";
    case_bad(c, ".toml", text, "is not one of \"bf16\", \"fp16\", \"fp32\", \"fp8\"; did you mean \"fp8\"?",
             NULL);
    snprintf(wanted, sizeof wanted,
             "%s:3: train.mixed_precision = \"FP8\" is not one of \"bf16\", \"fp16\", \"fp32\", \"fp8\"; did "
             "you mean \"fp8\"?",
             c->path);
    assert_string_equal(status_text(), wanted);
    case_bad(c, ".toml", "[train]\nmixed_precision = \"int8\"\n", "is not one of \"bf16\"", NULL);
    case_bad(c, ".yaml", "train:\n  mixed_precision: 8\n", ":2: train.mixed_precision = 8 is not one of",
             NULL);
    case_bad(c, ".toml", "[train]\nmixed_precision = true\n", "train.mixed_precision = true is not one of",
             NULL);
    case_bad(c, ".toml", "[train]\nmixed_precision = [\"fp8\"]\n", "[\"fp8\"] is not one of", NULL);
    case_bad_argument(c, "--train.mixed_precision=FP8", "--train.mixed_precision=FP8 is not one of",
                      "did you mean \"fp8\"?", NULL);
}

static void test_unknown(void **state) {
    config_case *c = *state;
    case_bad(c, ".toml", "[train]\nseq_length = 5\n",
             ":2: unknown key train.seq_length; did you mean train.seq_len?", NULL);
    case_bad(c, ".toml", "[training]\nbatchsize = 5\n",
             "unknown key training.batchsize; did you mean training.batch_size?", NULL);
    case_bad(c, ".toml", "[trian]\nlr = 5\n", ":1: unknown section [trian]; did you mean [train]?", NULL);
    case_bad(c, ".toml", "[train]\nlr = 5\n", "unknown key train.lr; did you mean optimizer.lr?", NULL);
    case_bad(c, ".toml", "[train]\nzzzzzzzz = 5\n",
             "unknown key train.zzzzzzzz; the keys of [train] are batch_size, ", NULL);
    case_bad(c, ".toml", "[qqqqqqqqqqqq]\nx = 5\n",
             "unknown section [qqqqqqqqqqqq]; the sections are run, model", NULL);
    case_bad(c, ".toml", "[qqqqqqqqqqqq]\n", "unknown section [qqqqqqqqqqqq]", NULL);
    case_bad(c, ".toml", "seq_len = 5\n", "unknown key seq_len; did you mean train.seq_len?", NULL);
    case_bad(c, ".toml", "[train.deep.deeper]\nx = 5\n", "unknown key train.deep.deeper.x", NULL);
    case_bad(c, ".yaml", "train:\n  optimiser:\n    lr: 1\n", ":3: unknown key train.optimiser.lr", NULL);
    case_bad_argument(c, "--train.seqlen=5",
                      "--train.seqlen=5: unknown key train.seqlen; did you mean train.seq_len?", NULL);
    case_bad_argument(c, "--learning_rate=1e-3", "did you mean optimizer.lr?", NULL);
    case_bad_argument(c, "--optimizer.learning-rate=1e-3", "did you mean optimizer.lr?", NULL);
    case_bad_argument(c, "--train.weight_decay=0", "did you mean optimizer.weight_decay?", NULL);
    case_bad_argument(c, "--train.bs=4", "did you mean train.batch_size?", NULL);
    case_bad_argument(c, "--train.steps=4", "did you mean train.max_steps?", NULL);
    case_bad_argument(c, "--hf.num_train_epochs=4", "did you mean train.num_epochs?", NULL);
    case_bad_argument(c, "--fp8", "did you mean train.mixed_precision?", NULL);
    case_bad_argument(c, "--gpus=1", "each process takes one GPU: mpirun -np N ottava train", NULL);
    case_bad_argument(c, "--trian.lr=3", "unknown section [trian]; did you mean [train]?", NULL);
    case_bad_argument(c, "--verbose", "--verbose: unknown section [verbose]", NULL);
    case_bad_argument(c, "--nproc-per-node=8", "mpirun -np N ottava train", NULL);
    case_bad_argument(c, "--nproc_per_node=2", "--train.threads", NULL);
    case_bad_argument(c, "-x", "-x: an option is written --section.key=value", NULL);
    case_bad_argument(c, "--", "an option is written", NULL);
    case_bad_argument(c, "--=3", "an option is written", NULL);
}

static void test_type(void **state) {
    config_case *c = *state;
    case_bad(c, ".toml", "[train]\nseq_len = \"8\"\n", ":2: train.seq_len = \"8\" must be an integer", NULL);
    case_bad(c, ".toml", "[train]\nseq_len = 2.5\n", "train.seq_len = 2.5 must be an integer", NULL);
    case_bad(c, ".toml", "[train]\ncompile_model = \"yes\"\n", "must be true or false", NULL);
    case_bad(c, ".toml", "[train]\ncompile_model = 1\n", "must be true or false", NULL);
    case_bad(c, ".toml", "[optimizer]\nlr = \"3e-4\"\n", "must be a number", NULL);
    case_bad(c, ".toml", "[optimizer]\nbetas = [0.9]\n", "optimizer.betas = [0.9] must be two numbers", NULL);
    case_bad(c, ".toml", "[optimizer]\nbetas = [0.9, 0.95, 0.99]\n", "must be two numbers", NULL);
    case_bad(c, ".toml", "[optimizer]\nbetas = [0.9, \"x\"]\n", "must be two numbers", NULL);
    case_bad(c, ".toml", "[optimizer]\nbetas = 0.9\n", "must be two numbers", NULL);
    case_bad(c, ".toml", "[data]\ndataset_path = 5\n", "data.dataset_path = 5 must be a text", NULL);
    case_bad(c, ".toml", "[float8]\nfilter_fqns = [1, 2]\n", "must be a list of texts", NULL);
    case_bad(c, ".toml", "[model]\nmoe_dense_layers = [1, \"x\"]\n", "must be an integer", NULL);
    case_bad(c, ".toml", "[model]\nmoe_dense_layers = [1, -1]\n", "must be in [0, 10000)", NULL);
    case_bad(c, ".toml", "[model]\nmoe_dense_layers = 1\n", "must be a list of integers", NULL);
    case_bad(c, ".toml", "[train.seq_len]\nx = 1\n", "train.seq_len = a table must be an integer", NULL);
    case_bad(c, ".toml", "train = 5\n", "unknown", NULL);
    case_bad(c, ".toml", "[train]\nseq_len = 1979-05-27\n", "seq_len is a date", NULL);
    case_bad(c, ".toml", "[optimizer]\nlr = nan\n", "must be a number", NULL);
    case_bad(c, ".toml", "[optimizer]\nlr = inf\n", "must be a number", NULL);
    case_bad(c, ".yaml", "train:\n  seq_len: \"8\"\n", "must be an integer", NULL);
    case_bad(c, ".yaml", "train:\n  seq_len: 99999999999999999999\n", "must be an integer", NULL);
    case_bad(c, ".yaml", "train:\n  seq_len: [1]\n", "train.seq_len = [1] must be an integer", NULL);
    case_bad_argument(c, "--train.seq_len=1e3", "must be an integer", NULL);
    case_bad_argument(c, "--optimizer.lr=0x1p-3", "must be a number", NULL);
    case_bad_argument(c, "--optimizer.lr=", "--optimizer.lr=", NULL);
    case_bad_argument(c, "--train.compile_model=maybe", "must be true or false", NULL);
    case_bad_argument(c, "--train.seq_len", "--train.seq_len needs a value", NULL);
    case_bad_argument(c, "--data.dataset_path=\xff\xfe", "--data.dataset_path",
                      "not UTF-8: byte 0xff at offset 0", NULL);
}

static void test_range(void **state) {
    config_case *c = *state;
    case_bad(c, ".toml", "[train]\nbatch_size = 0\n",
             "train.batch_size = 0 is out of range: must be in [1, 2147483647]", NULL);
    case_bad(c, ".toml", "[training]\nbatch_size = -4\n", "training.batch_size = -4 is out of range", NULL);
    case_bad(c, ".toml", "[optimizer]\nlr = 0\n", "must be greater than 0", NULL);
    case_bad(c, ".toml", "[optimizer]\nbetas = [0.9, 1.0]\n", "must be in [0, 1)", NULL);
    case_bad(c, ".toml", "[scheduler]\nmin_lr_ratio = 1.5\n", "must be in [0, 1]", NULL);
    case_bad(c, ".toml", "[distributed]\ndp_shard = 0\n", "must be -1 or at least 1", NULL);
    case_bad(c, ".toml", "[distributed]\ntp = -2\n", "must be -1 or at least 1", NULL);
    case_bad(c, ".toml", "[model]\nvocab_size = 3000000000\n", "must be in [1, 2147483647]", NULL);
}

static void test_twice(void **state) {
    config_case *c = *state;
    case_bad(c, ".toml", "[train]\nseq_len = 5\nseq_len = 6\n", ":3:", "redefine", "seq_len", NULL);
    case_bad(c, ".toml", "[train]\nseq_len = 5\n[train]\nseed = 6\n", ":3:", "redefine", NULL);
    case_bad(c, ".yaml", "train:\n  seq_len: 5\n  seq_len: 6\n",
             ":3: seq_len is given twice, first in line 2", NULL);
    case_bad(c, ".toml", "[train]\nmax_steps = 5\n[training]\nsteps = 6\n",
             ":4: training.steps = 6 sets the same key as ", ":2: train.max_steps = 5", NULL);
}

static void test_malformed(void **state) {
    config_case *c = *state;
    case_bad(c, ".toml", "[train\nseq_len = 5\n", ":1:", "table header", NULL);
    case_bad(c, ".toml", "[train]\nseq_len = \n", ":2:", "expected value", NULL);
    case_bad(c, ".toml", "[train]\nseq_len = 5 6\n", ":2:", NULL);
    case_bad(c, ".toml", "[data]\ndataset_path = \"abc\n", ":2:", NULL);
    case_bad(c, ".toml", "[data]\ndataset_path = \"a\\u0000b\"\n", ":2: dataset_path contains a NUL", NULL);
    case_bad(c, ".yaml", "train:\n  seq_len: 5\n seed: 4\n", ":3:", NULL);
    case_bad(c, ".yaml", "train: {seq_len: 5\n", "did not find expected", NULL);
    case_bad(c, ".yaml", "- a\n- b\n", "must be sections of keys", NULL);
    case_bad(c, ".yaml", "just text\n", "must be sections of keys", NULL);
    case_bad(c, ".yaml", "train:\n  seq_len: 5\n---\ntrain:\n  seq_len: 6\n", "a second document", NULL);
    case_bad(c, ".yaml", "? [a]\n: 5\n", "a key must be a plain name", NULL);
    case_bad(c, ".yaml", "train:\n  seq_len: !!python/object:os.system 5\n", ":2: the tag", NULL);
    case_bad(c, ".yaml", "train:\n  seq_len: \"a\\0b\"\n", "NUL", NULL);
}

static void test_files(void **state) {
    config_case *c = *state;
    config *cfg;
    assert_int_equal(case_arguments(c, &cfg, "missing/there.toml", (char *)NULL), OTT_ERR_NOT_FOUND);
    assert_string_equal(status_text(), "Config file not found: missing/there.toml");
    assert_int_equal(case_arguments(c, &cfg, "train.json", (char *)NULL), OTT_ERR_CONFIG);
    assert_string_equal(status_text(), "train.json: a configuration file ends in .toml, .yaml or .yml");
    assert_int_equal(case_arguments(c, &cfg, "a.toml", "--config", "b.toml", (char *)NULL), OTT_ERR_CONFIG);
    assert_string_equal(status_text(), "two configuration files: a.toml and b.toml; name one");
    assert_int_equal(case_arguments(c, &cfg, "--config", (char *)NULL), OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(), "needs the name of a configuration file"));
    case_bad(c, ".toml", "", "the file is empty", NULL);
    case_bad(c, ".yaml", " \n\n", "the file is empty", NULL);
    case_bad(c, ".toml", "# nothing\n", "the file sets no key", NULL);
    case_bad(c, ".yaml", "# nothing\n", "the file sets no key", NULL);
    case_bad(c, ".toml", "[train]\nseed = 1 # caf\xe9\n", ":2: not UTF-8: byte 0xe9 at offset 22", NULL);
    case_bad(c, ".yaml", "train:\n  seed: 1\n# \xc0\xaf\n", ":3: not UTF-8: byte 0xc0", NULL);
    assert_int_equal(case_parse_bytes(c, ".toml", "[train]\n\0seed = 1\n", 18, &cfg, NULL), OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(), ":2: a zero byte at offset 8"));
}

static void test_folder_and_size(void **state) {
    config_case *c = *state;
    config *cfg;
    static char big[(1 << 20) + 16];
    memset(big, '#', sizeof big);
    assert_int_not_equal(case_parse_bytes(c, ".toml", big, sizeof big, &cfg, NULL), OTT_OK);
    assert_non_null(strstr(status_text(), c->path));
    assert_int_equal(mem_read(c->account).now, 0);
}

static void test_memory(void **state) {
    config_case *c = *state;
    static const char text[] = "train:\n  seed: 5\nfloat8:\n  filter_fqns: [a, b]\n";
    for (int64_t n = 1; n < 2000; n++) {
        config *cfg = NULL;
        mem_fail_after(c->account, n);
        ott_status status = case_parse(c, ".yaml", text, &cfg);
        mem_fail_after(c->account, 0);
        if (status == OTT_OK) {
            config_close(cfg);
            assert_true(n > 3);
            return;
        }
        assert_int_equal(status, OTT_ERR_MEMORY);
        assert_int_equal(mem_read(c->account).now, 0);
    }
    fail_msg("never succeeded");
}

/* A file with some invalid keys: checks of other keys still run, and all errors are reported together. */
static void test_all_at_once(void **state) {
    config_case *c = *state;
    case_bad_lines(c, ".toml",
                   "[train]\nmixed_precision = \"fp8\"\nseq_len = \"many\"\noffload = \"moments\"\n"
                   "[float8]\nrecipe_name = \"rowwise\"\nenable_fsdp_float8_all_gather = true\n"
                   "precompute_float8_dynamic_scale_for_fsdp = true\nmargin = 2\namax_history_len = 8\n"
                   "input = \"e6m3\"\nweight = \"e4m3 rows\"\n"
                   "[model]\ndim = 10\nn_heads = 3\nn_kv_heads = 2\nmax_seq_len = 64\n"
                   "[optimizer]\nname = \"muon\"\n[distributed]\ntp = 2\n",
                   12, "seq_len = \"many\" must be an integer", "n_heads (3)", "n_kv_heads (2)",
                   "float8.enable_fsdp_float8_all_gather = true",
                   "float8.precompute_float8_dynamic_scale_for_fsdp", "float8.margin = 2 has no effect",
                   "float8.amax_history_len = 8 has no effect", "e6m3", "rows",
                   "train.offload = \"moments\" is not supported", "distributed.tp = 2 shards them",
                   "FP8 + Tensor Parallelism", NULL);
    /* max_seq_len is compared with seq_len, but not here, where seq_len is invalid */
    case_bad(c, ".toml", "[train]\nseq_len = \"many\"\n[model]\nmax_seq_len = 64\n", "must be an integer",
             NULL);
}

/* If seq_len and max_seq_len do not fit, the message names the keys, valid values, and where the values were
   set. */
static void test_lengths(void **state) {
    config_case *c = *state;
    case_bad(c, ".yaml",
             "rng: {seed: 3}\npacked_sequence:\n  packed_sequence_size: 8192\nmodel:\n  max_seq_len: 2048\n",
             "train.seq_len (8192) exceeds model.max_seq_len (2048): set --train.seq_len=2048 (",
             ":3: packed_sequence.packed_sequence_size = 8192), or --model.max_seq_len=8192 (",
             ":5: model.max_seq_len = 2048)", NULL);
    case_bad(c, ".yaml",
             "model: {max_seq_len: 64}\ntrain: {seq_len: 24}\neval: {enabled: true, seq_len: 65, "
             "dataset_path: a.txt}\n",
             "eval.seq_len (65) exceeds model.max_seq_len (64): set --eval.seq_len=64", NULL);
    config *cfg = case_good(c, ".yaml", "train: {batch_size: 1}\n", "--train.seq_len=8192", NULL);
    assert_int_equal(config_check_lengths(cfg), OTT_ERR_CONFIG);
    assert_string_equal(status_text(), "train.seq_len (8192) exceeds model.max_seq_len (2048): set "
                                       "--train.seq_len=2048, or --model.max_seq_len=8192 (the default)");
    config_close(cfg);
}

/* config_collect reports the errors of several checks together. config_collect_end removes them. */
static void test_collect(void **state) {
    config_case *c = *state;
    config *cfg = case_good(c, ".toml", "[train]\nbatch_size = 3\nglobal_batch_size = 9\n", NULL);
    config_collect_begin(cfg);
    assert_int_equal(config_collect(cfg, status_fail(OTT_ERR_CONFIG, "first")), OTT_OK);
    assert_int_equal(config_collect(cfg, OTT_OK), OTT_OK);
    assert_int_equal(config_collect(cfg, config_set_data_ranks(cfg, 2)), OTT_OK);
    assert_int_equal(config_collect(cfg, status_fail(OTT_ERR_IO, "a disk")), OTT_ERR_IO);
    assert_int_equal(config_collect_end(cfg), OTT_ERR_CONFIG);
    assert_non_null(strstr(status_text(), "2 errors keep"));
    assert_non_null(strstr(status_text(), "\n  first\n  global_batch_size (9) must be divisible"));
    config_collect_begin(cfg);
    assert_int_equal(config_collect_end(cfg), OTT_OK);
    assert_int_equal(config_set_data_ranks(cfg, 3), OTT_OK);
    assert_int_equal(config_set_data_ranks(cfg, 2), OTT_ERR_CONFIG);
    config_close(cfg);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(test_choice), CASE(test_unknown),     CASE(test_type),    CASE(test_range),
        CASE(test_twice),  CASE(test_malformed),   CASE(test_files),   CASE(test_folder_and_size),
        CASE(test_memory), CASE(test_all_at_once), CASE(test_lengths), CASE(test_collect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
