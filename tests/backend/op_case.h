/*
 * op_case: one generated call of an op: arguments made from the entry's text in ops.def, values, and the
 * comparison of what a device made of them with what the reference made of them. A case is made on the host,
 * copied to a device, run there and copied back.
 *
 * All arrays of a case lie in one block of memory with guard bytes around them and between a matrix's columns
 * and its leading dimension. After a run the outputs' elements must equal the reference's, and every other
 * byte of the block must be as it was: so inputs, paddings and neighbours are checked by one comparison.
 */
#ifndef OP_CASE_H
#define OP_CASE_H

#include "backend/op_args.h"
#include "tensor/exec.h"

#define CASE_REGIONS_MAX 64
#define CASE_BLOCK_BYTES (8 << 20)

typedef enum value_kind {
    VALUES_NORMAL,
    VALUES_ZEROS,     /* normal, a third of them 0 or -0 */
    VALUES_EXTREME,   /* a range of magnitudes from subnormal to nearly infinite */
    VALUES_NONFINITE, /* some NaN and infinities */
    VALUE_KINDS
} value_kind;

typedef enum region_role { REGION_IN, REGION_OUT, REGION_INOUT } region_role;

/* One array of a case. */
typedef struct region {
    char label[40]; /* "q[1].column.amax" */
    ott_dtype dtype;
    region_role role;
    int64_t rows, columns, ld;
    int64_t offset; /* of element 0 in the block, bytes */
} region;

/* What one field of the argument struct points at; the member its kind calls for is used. */
typedef struct case_field {
    tensor tensor;
    operand operand;
    qtensor qtensor;
    qlist qlist;
    int region; /* of the tensor */
} case_field;

typedef struct op_case {
    const op_info *op;
    const struct op_fixture *fixture;
    ott_dtype act; /* of the act fields, or of the first hp field */
    int shape;     /* index into the op's shape list */
    value_kind values;
    uint64_t number, draws; /* key of the case's random choices, and how many it made */
    int64_t size[26];       /* what the letters are bound to */
    int64_t note[4];        /* a fixture's own */
    bool act_used;          /* an hp field took `act` */
    int quant_writes;       /* arrays of the quantized tensor being made that the op writes */
    region regions[CASE_REGIONS_MAX];
    int region_count;
    int64_t bytes; /* of the block in use */
    case_field fields[OP_ARGS_FIELDS_MAX];
    _Alignas(16) unsigned char args[OP_ARGS_BYTES_MAX]; /* their addresses are in `live` */
    unsigned char *live, *pristine,
        *expected;        /* the block: after the last run, before, and after the reference */
    unsigned char *block; /* that the addresses in `loaded` are to be in */
    op_args loaded;       /* args as the device of the last case_run sees them */
    char message[400];    /* what case_compare found */
} op_case;

/* The arrays of a quantized tensor that an op touches. */
enum { QUANT_AMAX = 1, QUANT_SCALE = 2, QUANT_CODES = 4, QUANT_ALL = 7 };

/* What ops.def's text alone does not say of an op's arguments. */
typedef struct op_fixture {
    const char *op;
    const char *sets; /* the scalars, operands and index tensors that `prepare` fills, separated by spaces */
    int shapes;       /* how many shapes `bind` knows; 0: the generic list of rows x columns */
    void (*bind)(op_case *c);    /* sizes of letters, before anything is made */
    void (*prepare)(op_case *c); /* values of special fields, after everything is made */
    bool (*present)(const op_case *c, const op_field *f,
                    bool wanted); /* whether an optional field may be (NULL: any) */
    struct {
        const char *output, *input;
    } alias[2];       /* outputs that may be their input */
    bool opaque;      /* what it makes only the backend can read: another op's cases go through it */
    char groups;      /* the letter that counts the groups of a QTENSOR's rows; 0: it has none */
    int quant_writes; /* arrays of a QTENSOR; the others are inputs (amax and scale not negative) */
} op_fixture;

/* op_fixture.c */
const op_fixture *fixture_find(const op_info *op); /* never NULL: an empty one for an op that needs none */
/* The field that a generated case cannot fill without a fixture, or NULL. */
const op_field *fixture_missing(const op_info *op);
const quant_spec *fixture_quant_spec(int index, int *count);

/* op_values.c */
void values_fill(op_case *c, const region *r); /* elements of c->live */
void values_make_positive(op_case *c, const region *r);

/* op_case.c */
ott_status case_memory_open(mem *account, op_case *c); /* once, for any number of cases */
void case_memory_close(mem *account, op_case *c);
int case_shapes(const op_info *op);
int case_dtypes(const op_info *op); /* 3: F32, BF16 and F16 all make sense; 1: the op's formats are fixed */
/* Makes the case: arguments in c->args, values in c->live and c->pristine. False: does not fit c's arrays. */
bool case_make(op_case *c, const op_info *op, ott_dtype act, int shape, value_kind values, uint64_t number);
/* A random number below n, the same for the same case. */
int64_t case_draw(op_case *c, int64_t n);
bool case_present(const op_case *c, const char *field);
case_field *case_at(op_case *c, const char *field);
void case_set(op_case *c, const char *field, const void *value, size_t bytes); /* a scalar */
region *case_region(op_case *c, const char *label, ott_dtype d, int64_t rows, int64_t columns, bool padded,
                    region_role role, void **data);
/* A device with room for a case. */
typedef struct case_device {
    device *device;
    void *block;
} case_device;
/* Takes the device over, and closes it when this fails. */
ott_status case_device_open(device *d, case_device *out);
void case_device_close(case_device *d);
/* Does the device say that it cannot sum in the case's order? */
bool case_is_impossible(const op_case *c, const device *d);
/* The pristine block to the device, with the arguments as it sees them; the op itself, with c->loaded; and the
   device's block to c->live. */
ott_status case_load(op_case *c, const case_device *d, op_args *loaded);
ott_status case_call(op_case *c, exec *cx);
ott_status case_store(op_case *c, const case_device *d);
/* All three; case_expect keeps what comes out as what is expected. */
ott_status case_run(op_case *c, const case_device *d);
ott_status case_expect(op_case *c, const case_device *reference);
/* call(cx) as in a step: recorded in a plan, then replayed in an arena of just that size in which others have written. */
ott_status case_in_plan(exec *cx, ott_status (*call)(void *user, exec *cx), void *user);

/* ---- lists ---- */

enum {
    CASE_LIST_CALLS = 70,
    CASE_LIST_PLACE = 64 << 10
}; /* more than one launch of the GPU's takes; bytes of a call's place */
/* An op's list of calls in fp32, each in a place of its own in the device's block; then whether each did what it does alone. */
ott_status case_run_list(op_case *c, const op_info *op, const case_device *d);
ott_status case_compare_list(op_case *c, const op_info *op, const case_device *d,
                             const case_device *reference);
/* c->live against the reference. False: c->message says where they differ. */
bool case_compare(op_case *c);
/* The same where a library sums in its own order: each output's error may be so large in the root mean square, of that of what is
   expected; INFINITY: all values will do. */
bool case_compare_within(op_case *c, double most);
void case_describe(const op_case *c, char *text, size_t bytes);

#endif
