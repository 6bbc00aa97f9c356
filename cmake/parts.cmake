# strata_part(NAME [USES part...] [LIBRARIES target...] [SOURCES file...])
#
# One folder of src/ as one library, strata_NAME: every .cpp directly in it, or SOURCES. USES are other parts, all below
# it in the order of src/README.md (tests/check_includes.sh enforces the direction).
function(strata_part name)
  cmake_parse_arguments(PART "" "" "USES;LIBRARIES;SOURCES" ${ARGN})
  if(NOT PART_SOURCES)
    file(GLOB PART_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  endif()
  add_library(strata_${name} STATIC ${PART_SOURCES})
  target_include_directories(strata_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  foreach(part IN LISTS PART_USES)
    target_link_libraries(strata_${name} PUBLIC strata_${part})
  endforeach()
  target_link_libraries(strata_${name} PUBLIC ${PART_LIBRARIES})
endfunction()
