/* TensorBoard event files. The test reads them with its own reader, which was written from the description of
   the format. */
#include "support/folder.h"
#include "formats/tensorboard.h"
#include "base/clock.h"
#include "base/file/file.h"
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <cmocka.h>

typedef struct event {
    double wall_time;
    int64_t step;
    char version[32], tag[64];
    float value;
    bool has_value;
    int session_status;
} event;

/* Computes CRC-32C bit by bit. */
static uint32_t crc32c(const unsigned char *data, int64_t bytes) {
    uint32_t crc = ~0u;
    for (int64_t i = 0; i < bytes; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static uint64_t little_endian(const unsigned char *p, int bytes) {
    uint64_t x = 0;
    for (int i = bytes - 1; i >= 0; i--) x = x << 8 | p[i];
    return x;
}

static void check_crc(const unsigned char *data, int64_t bytes, const unsigned char *stored) {
    uint32_t crc = crc32c(data, bytes);
    assert_int_equal((uint32_t)little_endian(stored, 4), (uint32_t)((crc >> 15 | crc << 17) + 0xa282ead8u));
}

static uint64_t varint(const unsigned char **p) {
    uint64_t x = 0;
    for (int shift = 0;; shift += 7) {
        x |= (uint64_t)(**p & 0x7f) << shift;
        if (!(*(*p)++ & 0x80)) return x;
    }
}

static void copy_text(char *to, size_t capacity, const unsigned char *p, uint64_t length) {
    assert_true(length < capacity);
    memcpy(to, p, length);
    to[length] = '\0';
}

/* Parses a protobuf message. level: kind of message: 0 Event, 1 Summary, 2 Summary.Value, 3 SessionLog. */
static void parse(const unsigned char *p, const unsigned char *end, int level, event *e) {
    while (p < end) {
        uint64_t key = varint(&p), field = key >> 3, number = 0;
        const unsigned char *bytes = p;
        switch (key & 7) {
        case 0: number = varint(&p); break;
        case 1: p += 8; break;
        case 2:
            number = varint(&p);
            bytes = p;
            p += number;
            break;
        case 5: p += 4; break;
        default: fail_msg("wire type %d", (int)(key & 7));
        }
        assert_true(p <= end);
        if (level == 0 && key == 9)
            memcpy(&e->wall_time, bytes, 8);
        else if (level == 0 && key == 16)
            e->step = (int64_t)number;
        else if (level == 0 && key == 26)
            copy_text(e->version, sizeof e->version, bytes, number);
        else if (level == 0 && key == 42)
            parse(bytes, p, 1, e);
        else if (level == 0 && key == 58)
            parse(bytes, p, 3, e);
        else if (level == 1 && key == 10)
            parse(bytes, p, 2, e);
        else if (level == 2 && key == 10)
            copy_text(e->tag, sizeof e->tag, bytes, number);
        else if (level == 2 && key == 21)
            e->has_value = memcpy(&e->value, bytes, 4) != NULL;
        else if (level == 3 && key == 8)
            e->session_status = (int)number;
        else
            fail_msg("field %d at level %d", (int)field, level);
    }
}

static int read_events(folder *f, const char *path, event *events, int capacity) {
    char *data;
    int64_t bytes;
    int count = 0;
    assert_int_equal(file_read(f->account, path, 1 << 20, &data, &bytes), OTT_OK);
    const unsigned char *p = (const unsigned char *)data, *end = p + bytes;
    while (p < end) {
        assert_true(end - p >= 16 && count < capacity);
        int64_t length = (int64_t)little_endian(p, 8);
        assert_true(length >= 0 && length <= end - p - 16);
        check_crc(p, 8, p + 8);
        check_crc(p + 12, length, p + 12 + length);
        memset(&events[count], 0, sizeof *events);
        parse(p + 12, p + 12 + length, 0, &events[count++]);
        p += 16 + length;
    }
    mem_free(f->account, data);
    return count;
}

/* Returns the last event file of a folder. The folder must have `count` event files and no other files. */
static const char *find_events(folder *f, const char *logs, int count, char path[512]) {
    static const char start[] = "events.out.tfevents.";
    file_list list;
    assert_int_equal(file_list_folder(f->account, logs, &list), OTT_OK);
    assert_int_equal(list.count, count);
    assert_memory_equal(list.names[count - 1], start, strlen(start));
    snprintf(path, 512, "%s/%s", logs, list.names[count - 1]);
    file_list_free(&list);
    return path;
}

static void scalars(void **state) {
    folder *f = *state;
    tensorboard_writer *w;
    event e[8];
    char path[512], logs[128];
    double before = clock_wall();
    snprintf(logs, sizeof logs, "%s", folder_file(f, "runs/tb_logs"));
    assert_int_equal(tensorboard_open(f->account, logs, 0, &w), OTT_OK);
    find_events(f, logs, 1, path);
    assert_int_equal(read_events(f, path, e, 8), 1); /* opening the writer writes the record of the version */
    assert_string_equal(e[0].version, "brain.Event:2");
    assert_int_equal(tensorboard_scalar(w, 0, "train/loss", 10.5f), OTT_OK);
    assert_int_equal(tensorboard_scalar(w, 300, "train/loss", 2.25f), OTT_OK);
    assert_int_equal(tensorboard_scalar(w, INT64_C(1) << 40, "train/lr", NAN), OTT_OK);
    assert_int_equal(read_events(f, path, e, 8), 1);
    assert_int_equal(tensorboard_flush(w), OTT_OK);
    assert_int_equal(read_events(f, path, e, 8), 4);
    assert_int_equal(tensorboard_scalar(w, 301, "", -1.0f), OTT_OK);
    assert_int_equal(tensorboard_close(w), OTT_OK);
    assert_int_equal(tensorboard_close(NULL), OTT_OK);
    assert_int_equal(read_events(f, path, e, 8), 5);
    assert_true(e[1].step == 0 && e[1].value == 10.5f && e[1].has_value);
    assert_true(e[2].step == 300 && e[2].value == 2.25f);
    assert_string_equal(e[2].tag, "train/loss");
    assert_true(e[3].step == INT64_C(1) << 40 && isnan(e[3].value));
    assert_string_equal(e[3].tag, "train/lr");
    assert_true(e[4].step == 301 && e[4].value == -1.0f);
    for (int i = 0; i < 5; i++) {
        assert_true(e[i].wall_time >= before && e[i].wall_time <= clock_wall());
        assert_int_equal(e[i].session_status, 0);
    }
}

static void resumed_run(void **state) {
    folder *f = *state;
    tensorboard_writer *w, *second;
    event e[4];
    char path[512];
    assert_int_equal(tensorboard_open(f->account, f->path, 0, &w), OTT_OK);
    assert_int_equal(tensorboard_open(f->account, f->path, 500, &second),
                     OTT_OK); /* a second file of the same process in the same second */
    assert_int_equal(read_events(f, find_events(f, f->path, 2, path), e, 4), 2);
    assert_int_equal(e[1].step, 500);
    assert_int_equal(e[1].session_status, 1);
    assert_int_equal(tensorboard_close(w), OTT_OK);
    assert_int_equal(tensorboard_close(second), OTT_OK);
}

static void no_allocation_per_step(void **state) {
    folder *f = *state;
    tensorboard_writer *w;
    assert_int_equal(tensorboard_open(f->account, f->path, 0, &w), OTT_OK);
    int64_t allocations = 0;
    for (int64_t step = 0; step < 100; step++) {
        if (step == 1) allocations = mem_read(f->account).allocations;
        for (int i = 0; i < 4; i++) assert_int_equal(tensorboard_scalar(w, step, "train/loss", 1), OTT_OK);
        assert_int_equal(tensorboard_flush(w), OTT_OK);
    }
    assert_int_equal(mem_read(f->account).allocations, allocations);
    assert_int_equal(tensorboard_close(w), OTT_OK);
}

static void failures(void **state) {
    folder *f = *state;
    tensorboard_writer *w;
    assert_int_equal(tensorboard_open(f->account, folder_write_text(f, "file", "x"), 0, &w),
                     OTT_ERR_ARGUMENT);
    assert_null(w);
    for (int64_t n = 1; !w; n++) {
        mem_fail_after(f->account, n);
        ott_status status = tensorboard_open(f->account, f->path, 3, &w);
        assert_true(status == (w ? OTT_OK : OTT_ERR_MEMORY));
    }
    mem_fail_after(f->account, 0);
    assert_int_equal(tensorboard_close(w), OTT_OK);
}

/* Simulates a full disk by a limit of the file size. */
static void full_disk(void **state) {
    folder *f = *state;
    tensorboard_writer *w;
    struct rlimit before, small = {.rlim_cur = 100};
    char path[512];
    assert_int_equal(tensorboard_open(f->account, f->path, 0, &w), OTT_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 0; i < 4; i++) assert_int_equal(tensorboard_scalar(w, 1, "train/loss", 1), OTT_OK);
    ott_status status = tensorboard_flush(w);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, OTT_ERR_IO);
    assert_error_names(find_events(f, f->path, 1, path));
    assert_error_names(": cannot write: File too large");
    assert_int_equal(tensorboard_scalar(w, 2, "train/loss", 1), OTT_ERR_IO);
    assert_error_names("an earlier write failed");
    assert_int_equal(tensorboard_flush(w), OTT_ERR_IO);
    assert_int_equal(tensorboard_close(w), OTT_OK); /* the error was reported before */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(scalars, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(resumed_run, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(no_allocation_per_step, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(failures, folder_setup, folder_teardown),
        cmocka_unit_test_setup_teardown(full_disk, folder_setup, folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
