/* cuda/graph: the graph functions of the device table: CUDA graphs, captured from the device's stream. */
#ifndef CUDA_GRAPH_H
#define CUDA_GRAPH_H

#include "tensor/device.h"

ott_status graph_capture_begin(device *d);
ott_status graph_capture_end(device *d, device_graph **out);
ott_status graph_run(device *d, device_graph *g);
void graph_close(device *d, device_graph *g);

#endif
