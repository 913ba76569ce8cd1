# The CPU backend: src/cpu/backend*.c is compiled once; every other file once per instruction-set tier, with
# CPU_TIER naming the tier (cpu/simd.h maps one 16-lane vector type onto it). The tier is chosen at run time.
set(CPU_TIERS scalar)
set(CPU_TIER_FLAGS_scalar -O2)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND CPU_TIERS avx2 avx512)
  set(CPU_TIER_FLAGS_avx2 -O3 -march=x86-64-v3)
  set(CPU_TIER_FLAGS_avx512 -O3 -march=x86-64-v4 -mtune=skylake-avx512 -mprefer-vector-width=512)
endif()

if(OTTAVA_SANITIZE) # the 16-lane vectors of the scalar tier take minutes to compile otherwise
  foreach(tier IN LISTS CPU_TIERS)
    list(APPEND CPU_TIER_FLAGS_${tier} -O1 -fno-sanitize-address-use-after-scope)
  endforeach()
endif()

set(common_sources ${sources})
list(FILTER common_sources INCLUDE REGEX "/backend[^/]*\\.c$")
set(tier_sources ${sources})
list(FILTER tier_sources EXCLUDE REGEX "/backend[^/]*\\.c$")

add_library(ottava_cpu STATIC ${common_sources})
foreach(tier IN LISTS CPU_TIERS)
  add_library(ottava_cpu_${tier} OBJECT ${tier_sources})
  target_include_directories(ottava_cpu_${tier} PRIVATE src include)
  target_compile_options(ottava_cpu_${tier} PRIVATE ${CPU_TIER_FLAGS_${tier}})
  target_compile_definitions(ottava_cpu_${tier} PRIVATE CPU_TIER=${tier} CPU_TIER_${tier}=1)
  target_sources(ottava_cpu PRIVATE $<TARGET_OBJECTS:ottava_cpu_${tier}>)
  target_compile_definitions(ottava_cpu PRIVATE CPU_HAS_${tier}=1)
endforeach()
