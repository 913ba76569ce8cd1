/* tests/cuda/planted: the fault that this run has, by its number in faults.txt; 0: none. Comes before each source that plant.awk
   has written. */
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
