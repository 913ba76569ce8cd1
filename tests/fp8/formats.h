/*
 * A second implementation of the FP8 formats, from the specification OCP OFP8 v1.0, in double. It shares no
 * code with fp8/cast, which tests compare with it.
 */
#ifndef TESTS_FP8_FORMATS_H
#define TESTS_FP8_FORMATS_H

#include "fp8/cast.h"

/* Returns the value of a code without sign. Every code is read as a finite number: E4M3's 0x7F is 480, E5M2's
 * 0x7C is 65536. */
double format_value(int code, ott_dtype d);
/* Returns the largest finite code without sign: 0x7E of E4M3, 0x7B of E5M2. */
int format_top(ott_dtype d);
/* Finds the FP8 code of x by a search for the nearest value. Ties go to the even code. */
uint8_t format_search(float x, ott_dtype d, cast_mode mode);

#endif
