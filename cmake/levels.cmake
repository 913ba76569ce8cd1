# The levels of the source tree, lowest first. Level L is the static library ottava_L, made of src/L/*.c.
set(OTTAVA_LEVELS base fp8 kinds tensor config cpu comm backend formats tokenizer data nn optimizer
    parallel model resolve report folders checkpoint train monitor run export eval generate api bench plan
    hub)

# The levels that each level may include and link. tools/check_levels.sh checks the includes.
set(base_uses)
set(fp8_uses base)
set(tensor_uses base fp8)
set(kinds_uses)
set(config_uses base fp8 kinds)
set(cpu_uses base fp8 tensor)
set(comm_uses base fp8 tensor)
set(backend_uses base fp8 tensor cpu)
set(formats_uses base fp8 kinds config)
set(tokenizer_uses base formats)
set(data_uses base config tokenizer formats)
set(nn_uses base fp8 kinds tensor)
set(optimizer_uses nn ${nn_uses})
set(parallel_uses nn ${nn_uses})
set(model_uses optimizer parallel ${parallel_uses})
set(resolve_uses config model ${model_uses})
set(report_uses base fp8 config formats)
set(folders_uses model formats report config ${model_uses})
set(checkpoint_uses folders ${folders_uses})
set(train_uses checkpoint report data tokenizer comm backend ${checkpoint_uses})
set(monitor_uses train ${train_uses})
set(run_uses monitor resolve ${monitor_uses})
set(export_uses run ${run_uses})
set(eval_uses run ${run_uses})
set(generate_uses run ${run_uses})
set(api_uses eval generate export ${export_uses})
set(bench_uses api ${api_uses}) # in the program, not in the library
set(plan_uses api ${api_uses}) # in the program, not in the library
set(hub_uses formats ${formats_uses}) # in the program, not in the library
set(cli_uses bench plan hub)
set(mpi_uses comm)                     # a plugin that cmake/products.cmake builds
set(cuda_uses base fp8 tensor backend) # a plugin that cmake/cuda_plugin.cmake builds

# embed_text(FILE NAME TARGET): embeds a file as the C string NAME in a level's library. A changed file is
# embedded again.
function(embed_text file name target)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} bytes HEX)
  string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${bytes}")
  file(CONFIGURE OUTPUT ${name}.c CONTENT "const char ${name}[] = \"${bytes}\";\n" @ONLY)
  target_sources(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/${name}.c)
endfunction()

foreach(level IN LISTS OTTAVA_LEVELS)
  file(GLOB sources CONFIGURE_DEPENDS src/${level}/*.c src/${level}/*/*.c src/${level}/*.cpp
      src/${level}/*/*.cpp)
  if(NOT sources)
    continue()
  endif()
  if(level STREQUAL "cpu")
    include(cmake/cpu_isas.cmake)
  else()
    add_library(ottava_${level} STATIC ${sources})
  endif()
  harden(ottava_${level})
  target_include_directories(ottava_${level} PUBLIC src include)
  foreach(lower IN LISTS ${level}_uses)
    if(TARGET ottava_${lower})
      target_link_libraries(ottava_${level} PUBLIC ottava_${lower})
    endif()
  endforeach()
endforeach()

target_link_libraries(ottava_base PUBLIC Threads::Threads PkgConfig::JANSSON m)
if(TARGET ottava_config)
  target_link_libraries(ottava_config PUBLIC PkgConfig::YAML)
  # Only the headers of toml++ are used: Debian has no libtomlplusplus.a, which libottava.a would need.
  target_include_directories(ottava_config SYSTEM PRIVATE ${TOMLPLUSPLUS_INCLUDE_DIRS})
  # Unique symbols would stay global in libottava.a.
  target_compile_options(ottava_config PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
endif()
if(TARGET ottava_tokenizer)
  target_link_libraries(ottava_tokenizer PUBLIC PkgConfig::PCRE2 PkgConfig::UTF8PROC)
endif()
if(TARGET ottava_data)
  target_link_libraries(ottava_data PUBLIC PkgConfig::ZLIB PkgConfig::ZSTD)
endif()
target_link_libraries(ottava_hub PUBLIC PkgConfig::CURL PkgConfig::CRYPTO)
embed_text(src/report/page.html report_page_template ottava_report)
