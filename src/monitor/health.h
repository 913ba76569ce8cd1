/* monitor/health: measures the quality of FP8 quantization at every N-th step. For each quantized copy of
   each tensor of each linear layer: amax, scales, shares of saturated and underflowed elements, signal to
   quantization noise ratio (SQNR). Measures the first micro-batch of every rank and combines the ranks.
   Writes to metrics.jsonl. If a layer's SQNR on any rank is below float8.fallback_sqnr_db at several
   measurements in a row, the layer falls back to high precision on all ranks. */
#ifndef MONITOR_HEALTH_H
#define MONITOR_HEALTH_H

#include "formats/metrics.h"
#include "train/trainer.h"

typedef struct health_options {
    int64_t interval; /* steps between measurements, 0: never */
    double bound_db;  /* measurements with a lower SQNR count as low */
    int64_t window;   /* number of low measurements in a row after which a layer falls back; 0: never */
} health_options;

typedef struct health health;

ott_status health_open(trainer *t, const health_options *o, health **out);
void health_close(health *h); /* h may be NULL */
/* Call it before a step. Sets the trainer's quantization hook if this step is measured. */
void health_begin_step(health *h);
/* Call it after a step. Writes measurements to metrics (may be NULL) and applies fallbacks. Collective. */
ott_status health_end_step(health *h, metrics_writer *metrics);

/* 10 log10(signal / noise); infinite without noise, NaN without a signal. */
double health_sqnr(double signal, double noise);

#endif
