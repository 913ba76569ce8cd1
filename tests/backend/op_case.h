/*
 * op_case: one generated call of an op. Arguments are made from the op's entry in ops.def and filled with
 * values; a device's results are compared with the results of the scalar reference. A case is made on the
 * host, copied to a device, run there and copied back.
 *
 * All arrays of a case are in one block of memory, with guard bytes around them and between a matrix's
 * columns and its leading dimension. After a run the outputs must equal the reference's outputs, and every
 * other byte of the block must be unchanged. So one comparison checks inputs, padding and neighbors.
 */
#ifndef OP_CASE_H
#define OP_CASE_H

#include "backend/op_args.h"
#include "tensor/exec.h"

#define CASE_REGIONS_MAX 64
#define CASE_BLOCK_BYTES (8 << 20)

typedef enum value_kind {
    VALUES_NORMAL,
    VALUES_ZEROS,     /* normal values; a third is 0 or -0 */
    VALUES_EXTREME,   /* magnitudes from subnormal to nearly infinite */
    VALUES_NONFINITE, /* some NaN and infinities */
    VALUE_KINDS
} value_kind;

typedef enum region_role { REGION_IN, REGION_OUT, REGION_INOUT } region_role;

/* An array of a case: a part of the block. */
typedef struct region {
    char label[40]; /* name for messages, such as "q[1].column.amax" */
    ott_dtype dtype;
    region_role role;
    int64_t rows, columns, ld;
    int64_t offset;  /* bytes from the beginning of the block to element 0 */
    scale_grid grid; /* for E8M0 scales of a quantized copy: the number of scales; else 0 */
} region;

/* What one pointer field of the op's arguments points at. Only the member for this kind of field is used. */
typedef struct case_field {
    tensor tensor;
    operand operand;
    qtensor qtensor;
    qlist qlist;
    int region; /* number of the tensor's region in op_case.regions */
} case_field;

typedef struct op_case {
    const op_info *op;
    const struct op_fixture *fixture;
    /* the format of fields that are "act" in ops.def, and of the first field that is "hp" */
    ott_dtype act;
    int shape; /* index in the op's shape list */
    value_kind values;
    uint64_t number, draws; /* number: also the seed; draws: random choices so far */
    int64_t size[26];       /* sizes of the letters 'A' to 'Z' in the op's shapes */
    int64_t note[4];        /* for use by the op's fixture */
    bool act_used;          /* true: a field with format "hp" has the format `act` already */
    bool tidy;              /* true: rows are aligned as in a model, and all state has the format `act` */
    int quant_writes;       /* which arrays (QUANT_*) of the current quantized tensor the op writes */
    region regions[CASE_REGIONS_MAX];
    int region_count;
    int64_t bytes; /* size of the used part of the block */
    case_field fields[OP_ARGS_FIELDS_MAX];
    /* the op's argument struct, with addresses in `live` */
    _Alignas(16) unsigned char args[OP_ARGS_BYTES_MAX];
    /* copies of the block. live: after the last run; pristine: before any run; expected: the reference's
       run */
    unsigned char *live, *pristine, *expected;
    unsigned char *block; /* the device's block, which `loaded` points into */
    op_args loaded;       /* the arguments with addresses on the device of the last case_run */
    char message[400];    /* the difference that case_compare found */
} op_case;

/* The arrays of a quantized tensor that an op may use. */
enum { QUANT_AMAX = 1, QUANT_SCALE = 2, QUANT_CODES = 4, QUANT_ALL = 7 };

/* Functions and data that generated cases of an op need in addition to ops.def. */
typedef struct op_fixture {
    const char *op;
    /* scalars, operands and index tensors that `prepare` fills: their names, separated by spaces */
    const char *sets;
    /* number of shapes that `bind` can set; 0: the shapes of ops without own shapes */
    int shapes;
    void (*bind)(op_case *c);    /* sets letter sizes, before anything is made */
    void (*prepare)(op_case *c); /* sets the values of special fields, after all arrays are made */
    bool (*present)(const op_case *c, const op_field *f,
                    bool wanted); /* returns true if an optional field may be present; NULL: always */
    struct {
        const char *output, *input;
    } alias[2]; /* outputs that may share memory with an input */
    /* only the backend can read this op's output; the ops that have it as input test this op, too */
    bool opaque;
    char groups; /* letter that counts the groups of a QTENSOR's rows; 0: no groups */
    /* the arrays (QUANT_*) of a QTENSOR that the op writes; it reads the others, with positive amax and
       scale */
    int quant_writes;
} op_fixture;

/* Defined in op_fixture.c. */
const op_fixture *fixture_find(const op_info *op); /* never NULL: an empty fixture if an op needs none */
/* Returns a field that only a fixture can fill, but the op's fixture does not fill. NULL: there is none. */
const op_field *fixture_missing(const op_info *op);
const quant_spec *fixture_quant_spec(int index, int *count);

/* Defined in op_values.c. */
void values_fill(op_case *c, const region *r); /* fills the elements of an array in c->live */
void values_make_positive(op_case *c, const region *r);

/* Defined in op_case.c. */
ott_status case_memory_open(mem *account, op_case *c); /* called once, before any number of cases */
void case_memory_close(mem *account, op_case *c);
int case_shapes(const op_info *op);
/* Number of activation formats to test: 3 (F32, BF16, F16), or 1 if the op's formats are fixed. */
int case_dtypes(const op_info *op);
/* Makes the case: arguments in c->args, values in c->live and c->pristine. False if `c` is too small for
   it. */
bool case_make(op_case *c, const op_info *op, ott_dtype act, int shape, value_kind values, uint64_t number);
/* Returns a random number in [0, n). The sequence of numbers depends only on the case. */
int64_t case_draw(op_case *c, int64_t n);
bool case_present(const op_case *c, const char *field);
case_field *case_at(op_case *c, const char *field);
/* sets a scalar of the op's arguments */
void case_set(op_case *c, const char *field, const void *value, size_t bytes);
region *case_region(op_case *c, const char *label, ott_dtype d, int64_t rows, int64_t columns, bool padded,
                    region_role role, void **data);
/* A device, and a block in its memory for the arrays of cases. */
typedef struct case_device {
    device *device;
    void *block;
} case_device;
/* Takes ownership of the device, and closes it on failure. */
ott_status case_device_open(device *d, case_device *out);
void case_device_close(case_device *d);
/* True if the device reports that its GEMMs cannot sum in the order that the case asks for. */
bool case_is_impossible(const op_case *c, const device *d);
/* case_load copies the pristine block to the device, and writes the arguments with the device's addresses to
   *loaded. case_call runs the op with c->loaded. case_store copies the device's block to c->live. */
ott_status case_load(op_case *c, const case_device *d, op_args *loaded);
ott_status case_call(op_case *c, exec *cx);
ott_status case_store(op_case *c, const case_device *d);
/* case_run: case_load, case_call, case_store. case_expect stores the result of a run as the expected one. */
ott_status case_run(op_case *c, const case_device *d);
ott_status case_expect(op_case *c, const case_device *reference);
/* Runs call(cx) as a step does: records it in a plan, then replays it in an arena that contains old data. */
ott_status case_in_plan(exec *cx, ott_status (*call)(void *user, exec *cx), void *user);

/* ---- lists ---- */

/* Number of calls in a list (more than a GPU launch can take); bytes of each call's part of the block. */
enum { CASE_LIST_CALLS = 70, CASE_LIST_PLACE = 64 << 10 };
/* Runs a list of fp32 calls of an op, each in its own part of the device's block. Checks that each call has
   the result of a single call. */
ott_status case_run_list(op_case *c, const op_info *op, const case_device *d);
ott_status case_compare_list(op_case *c, const op_info *op, const case_device *d,
                             const case_device *reference);
/* Compares c->live with the reference's results. If false, c->message describes the difference. */
bool case_compare(op_case *c);
/* Like case_compare, but for libraries with their own order of sums. The root mean square error of each
   output may be up to `most`, relative to the expected values. INFINITY: any values pass. */
bool case_compare_within(op_case *c, double most);
void case_describe(const op_case *c, char *text, size_t bytes);

#endif
