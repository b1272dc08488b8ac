# SPDX-License-Identifier: BSD-3-Clause
# The target `docs`: HTML pages of docs/ by pandoc, and the API reference of the public headers by Doxygen, in
# build/docs. It is not part of the normal build. A warning of Doxygen is an error.
find_program(LOCKSTEP_PANDOC pandoc)
find_program(LOCKSTEP_DOXYGEN doxygen)
if(NOT LOCKSTEP_PANDOC OR NOT LOCKSTEP_DOXYGEN)
  add_custom_target(docs COMMAND ${CMAKE_COMMAND} -E echo "the target docs needs the packages pandoc and doxygen"
                    COMMAND ${CMAKE_COMMAND} -E false)
  return()
endif()

set(html ${PROJECT_BINARY_DIR}/docs)
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
configure_file(docs/Doxyfile.in ${html}/Doxyfile @ONLY)
add_custom_target(docs DEPENDS ${outputs} COMMAND ${LOCKSTEP_DOXYGEN} ${html}/Doxyfile
                  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} VERBATIM)
