/*
 * tests/cuda/planted: number of the active planted fault, from faults.txt; 0: none. Included before each
 * source that plant.awk writes.
 */
#ifndef PLANTED_H
#define PLANTED_H

#ifdef __cplusplus
extern "C" {
#endif
extern int planted_fault;
#ifdef __cplusplus
}
#endif
#define planted(number) (planted_fault == (number))

#endif
