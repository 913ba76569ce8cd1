/*
 * The FP8 formats written a second time, from OCP OFP8 v1.0 and in double. Tests compare fp8/cast with it. It
 * shares no code with fp8/cast.
 */
#ifndef TESTS_FP8_FORMATS_H
#define TESTS_FP8_FORMATS_H

#include "fp8/cast.h"

/* Value of a code without sign, every code read as a finite number (E4M3's 0x7F as 480, E5M2's 0x7C as
 * 65536). */
double format_value(int code, ott_dtype d);
/* The largest finite code without sign: 0x7E or 0x7B. */
int format_top(ott_dtype d);
/* The FP8 code of x by search: the nearest value; ties go to the even code. */
uint8_t format_search(float x, ott_dtype d, cast_mode mode);

#endif
