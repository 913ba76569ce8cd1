/*
 * train/health: how well FP8 holds the tensors of a run: at every N-th step, for each use of each tensor of
 * each linear layer, its amax and scale, what was saturated and what vanished, and the signal to quantization
 * noise ratio (SQNR), from the step's first micro-batch, of each rank: together what all of them measured. Goes to
 * metrics.jsonl; and where a layer stays below a bound on any rank, all move it to high precision (float8.fallback).
 */
#ifndef TRAIN_HEALTH_H
#define TRAIN_HEALTH_H

#include "formats/metrics.h"
#include "train/trainer.h"

typedef struct health_options {
    int64_t interval; /* steps between measurements, 0: never */
    double bound_db;  /* a layer whose SQNR is below it ... */
    int64_t window;   /* ... at this many measurements in a row falls back; 0: none does */
} health_options;

typedef struct health health;

ott_status health_open(trainer *t, const health_options *o, health **out);
void health_close(health *h); /* NULL is allowed */
/* Before a step: is it one to be measured? Then the trainer's hook is set. */
void health_begin_step(health *h);
/* After it: writes what was measured (metrics NULL: another rank does), and moves layers that have stayed below the bound to
   high precision. All ranks of the run do. */
ott_status health_end_step(health *h, metrics_writer *metrics);

/* 10 log10(signal / noise); infinite without noise, NaN without a signal. */
double health_sqnr(double signal, double noise);

#endif
