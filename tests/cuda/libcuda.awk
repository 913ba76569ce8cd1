# tests/cuda/libcuda.awk: reads nm's list of the CUDA driver library's names. Writes a C source with a weak
# function for each name. Functions that load and query code return 0, all others CUDA_ERROR_STUB_LIBRARY (34).
$2 == "T" {
  status = $3 ~ /^cu(Func|Kernel|Library|Module|Occupancy)/ ? 0 : 34
  printf "int __attribute__((weak)) %s(void);\nint %s(void) { return %d; }\n", $3, $3, status
}
