# SPDX-License-Identifier: BSD-3-Clause
# The target `api`: the API reference of the public headers by Doxygen, in build/docs/api. A warning of Doxygen is an
# error. The target `docs`: this reference, and HTML pages of docs/ by pandoc, in build/docs. Neither is part of the
# normal build.
find_program(LOCKSTEP_PANDOC pandoc)
find_program(LOCKSTEP_DOXYGEN doxygen)
set(html ${PROJECT_BINARY_DIR}/docs)

if(LOCKSTEP_DOXYGEN)
  configure_file(docs/Doxyfile.in ${html}/Doxyfile @ONLY)
  add_custom_target(api COMMAND ${LOCKSTEP_DOXYGEN} ${html}/Doxyfile WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
else()
  add_custom_target(api COMMAND ${CMAKE_COMMAND} -E echo "the target api needs the package doxygen"
                    COMMAND ${CMAKE_COMMAND} -E false)
endif()

if(NOT LOCKSTEP_PANDOC)
  add_custom_target(docs COMMAND ${CMAKE_COMMAND} -E echo "the target docs needs the packages pandoc and doxygen"
                    COMMAND ${CMAKE_COMMAND} -E false)
  return()
endif()

set(filter ${PROJECT_SOURCE_DIR}/tools/cmake/docs_links.lua)
set(style ${PROJECT_SOURCE_DIR}/tools/cmake/docs_style.html)
file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.md)
set(outputs)
foreach(page IN LISTS pages)
  get_filename_component(name ${page} NAME_WE)
  string(REPLACE "README" "index" name ${name})
  add_custom_command(
    OUTPUT ${html}/${name}.html
    COMMAND ${CMAKE_COMMAND} -E make_directory ${html}
    COMMAND ${LOCKSTEP_PANDOC} --from gfm --to html --standalone --lua-filter ${filter} --include-in-header ${style}
            --metadata pagetitle=Lockstep --output ${html}/${name}.html ${page}
    DEPENDS ${page} ${filter} ${style}
    VERBATIM)
  list(APPEND outputs ${html}/${name}.html)
endforeach()
add_custom_target(docs DEPENDS ${outputs})
add_dependencies(docs api)
