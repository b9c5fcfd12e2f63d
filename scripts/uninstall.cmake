# Removes the files of the last `cmake --install` from this build directory, and its own directories that this leaves empty.
#
#   cmake --build build/release --target uninstall
set(manifest ${CMAKE_BINARY_DIR}/install_manifest.txt)
if(NOT EXISTS ${manifest})
  message(FATAL_ERROR "${manifest} is not there: nothing was installed from this build directory")
endif()
file(STRINGS ${manifest} files)
foreach(file IN LISTS files)
  set(installed $ENV{DESTDIR}${file})
  file(REMOVE ${installed})
  # Upwards through what is ours (shardledger/ and all in it, lib/python/), as long as nothing else is there.
  cmake_path(GET installed PARENT_PATH directory)
  while(IS_DIRECTORY ${directory} AND directory MATCHES "/shardledger(/|$)|/python$")
    file(GLOB rest ${directory}/* ${directory}/.*)
    list(FILTER rest EXCLUDE REGEX "/\\.\\.?$")
    list(LENGTH rest count)
    if(count EQUAL 1 AND rest MATCHES "/__pycache__$") # made by Python, for the package that is gone
      file(REMOVE_RECURSE ${rest})
      set(count 0)
    endif()
    if(count GREATER 0)
      break()
    endif()
    file(REMOVE_RECURSE ${directory})
    cmake_path(GET directory PARENT_PATH directory)
  endwhile()
endforeach()
file(REMOVE ${manifest})
