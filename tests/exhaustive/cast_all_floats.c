/*
 * Casts all 2^32 floats to E4M3 and E5M2, saturating and overflowing, and compares each code with an
 * independent reference. The reference takes the floats by increasing magnitude. It changes to the next code
 * at the midpoint of two codes' values, computed in double. Takes a few minutes on two threads. Prints
 * mismatches, and exits with 1 if there are any.
 */
#include "fp8/cast.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

enum { CODES = 128, SHOWN = 10 };

/* Casts all floats to one format in one mode. */
typedef struct job {
    ott_dtype d;
    cast_mode mode;
    int64_t mismatches;
} job;

/* Returns the value of a code without sign. Every code is read as a finite number. */
static double code_value(int code, ott_dtype d) {
    int bits = d == OTT_E4M3 ? 3 : 2, bias = d == OTT_E4M3 ? 7 : 15;
    int exponent = code >> bits, mantissa = code & ((1 << bits) - 1);
    return exponent == 0 ? ldexp(mantissa, 1 - bias - bits)
                         : ldexp((1 << bits) + mantissa, exponent - bias - bits);
}

static void compare(job *j, uint32_t bits, uint8_t expected) {
    uint8_t code = cast_to_fp8(fmath_from_bits(bits), j->d, j->mode);
    if (code == expected) return;
    if (j->mismatches++ < SHOWN)
        printf("%s %s %08" PRIx32 ": 0x%02x, expected 0x%02x\n", dtype_name(j->d),
               j->mode == CAST_SATURATE ? "saturate" : "overflow", bits, code, expected);
}

static void run_job(job *j) {
    int top = j->d == OTT_E4M3 ? 0x7e : 0x7b, overflow = top + 1, code = 0;
    /* midpoint of the values of codes i and i + 1; code top + 1 is read as a finite number too */
    double midpoint[CODES];
    for (int i = 0; i <= top; i++) midpoint[i] = (code_value(i, j->d) + code_value(i + 1, j->d)) / 2;

    for (uint32_t bits = 0; bits <= 0x7f800000u; bits++) {
        double x = (double)fmath_from_bits(bits);
        while (code <= top && (x > midpoint[code] || (x == midpoint[code] && code % 2 != 0))) code++;
        int expected = code <= top ? code : j->mode == CAST_SATURATE ? top : overflow;
        compare(j, bits, (uint8_t)expected);
        compare(j, bits | 0x80000000u, (uint8_t)(expected | 0x80));
    }
    for (uint32_t bits = 0x7f800001u; bits <= 0x7fffffffu; bits++) {
        compare(j, bits, 0x7f);
        compare(j, bits | 0x80000000u, 0x7f);
    }
}

/* Casts all floats to one format in both modes. */
static void *run_format(void *argument) {
    job *jobs = argument;
    for (int i = 0; i < 2; i++) run_job(&jobs[i]);
    return NULL;
}

int main(void) {
    job jobs[4] = {{OTT_E4M3, CAST_SATURATE, 0},
                   {OTT_E4M3, CAST_OVERFLOW, 0},
                   {OTT_E5M2, CAST_SATURATE, 0},
                   {OTT_E5M2, CAST_OVERFLOW, 0}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, run_format, &jobs[2 * i]) != 0) {
            fprintf(stderr, "cannot start a thread\n");
            return 1;
        }
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    int64_t mismatches = 0;
    for (int i = 0; i < 4; i++) {
        printf("%s %s: 4294967296 floats, %" PRId64 " mismatches\n", dtype_name(jobs[i].d),
               jobs[i].mode == CAST_SATURATE ? "saturate" : "overflow", jobs[i].mismatches);
        mismatches += jobs[i].mismatches;
    }
    return mismatches == 0 ? 0 : 1;
}
