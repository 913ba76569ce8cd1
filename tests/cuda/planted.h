/*
 * tests/cuda/planted: planted_fault is the number in faults.txt of the fault that is active; 0: none.
 * plant.awk plants the faults in copies of the sources, and each copy includes this header.
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
