# Builds the CPU backend. src/cpu/backend*.c is compiled once, every other file once per instruction set
# (ISA), with the macro CPU_ISA. cpu/simd/simd.h implements a vector type of 16 lanes for each ISA. The ISA is
# chosen at run time. For ISAs with a tile unit only src/cpu/tiles.c and the products are compiled.
set(CPU_ISAS scalar)
set(CPU_ISA_FLAGS_scalar -O2)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND CPU_ISAS avx2 avx512 avx512bf16)
  set(CPU_ISA_FLAGS_avx2 -O3 -march=x86-64-v3)
  set(CPU_ISA_FLAGS_avx512 -O3 -march=x86-64-v4 -mtune=skylake-avx512 -mprefer-vector-width=512)
  # avx512bf16 is avx512 with dot products of bf16 pairs. So CPU_ISA_avx512 is defined too.
  set(CPU_ISA_FLAGS_avx512bf16 ${CPU_ISA_FLAGS_avx512} -mavx512bf16 -mavx512vbmi -DCPU_ISA_avx512=1)
  # amx is avx512bf16 with a tile unit, which only matrix products use. amx_emulated implements the tile unit
  # in plain C.
  set(CPU_TILE_ISAS amx amx_emulated)
  set(CPU_ISA_FLAGS_amx_emulated ${CPU_ISA_FLAGS_avx512bf16} -DCPU_ISA_avx512bf16=1)
  set(CPU_ISA_FLAGS_amx ${CPU_ISA_FLAGS_amx_emulated} -mamx-tile -mamx-bf16)
endif()
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  list(APPEND CPU_ISAS neon)
  # Without -fno-schedule-insns GCC would move loads up before it allocates registers, and then spill the sums
  # of a product.
  set(CPU_ISA_FLAGS_neon -O3 $<$<C_COMPILER_ID:GNU>:-fno-schedule-insns>)
endif()

if(OTTAVA_SANITIZE)
  foreach(isa IN LISTS CPU_ISAS CPU_TILE_ISAS)
    list(APPEND CPU_ISA_FLAGS_${isa} -O1)
  endforeach()
endif()

set(common_sources ${sources})
list(FILTER common_sources INCLUDE REGEX "/backend[^/]*\\.c$")
set(isa_sources ${sources})
list(FILTER isa_sources EXCLUDE REGEX "/(backend[^/]*|tiles)\\.c$")
set(tile_sources src/cpu/tiles.c src/cpu/gemm/gemm.c src/cpu/gemm/grouped.c)

add_library(ottava_cpu STATIC ${common_sources})
foreach(isa IN LISTS CPU_ISAS CPU_TILE_ISAS)
  if(isa IN_LIST CPU_TILE_ISAS)
    add_library(ottava_cpu_${isa} OBJECT ${tile_sources})
  else()
    add_library(ottava_cpu_${isa} OBJECT ${isa_sources})
  endif()
  target_include_directories(ottava_cpu_${isa} PRIVATE src include)
  # -fno-math-errno lets square roots be vectorized. -falign-functions gives inner loops the same alignment in
  # every link; a bad alignment costs a sixth of a product's time.
  target_compile_options(ottava_cpu_${isa} PRIVATE ${CPU_ISA_FLAGS_${isa}} -fno-math-errno
      -falign-functions=64)
  target_compile_definitions(ottava_cpu_${isa} PRIVATE CPU_ISA=${isa} CPU_ISA_${isa}=1)
  target_sources(ottava_cpu PRIVATE $<TARGET_OBJECTS:ottava_cpu_${isa}>)
  target_compile_definitions(ottava_cpu PRIVATE CPU_HAS_${isa}=1)
endforeach()
