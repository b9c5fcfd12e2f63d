# Run after a GoogleTest executable is linked: writes a file for CTest with one test a suite. Suites with parameters are left
# to gtest_discover_tests. What each case came to is in RESULTS/SUITE.xml, where scripts/junit_totals.py counts them.
execute_process(COMMAND ${EXECUTABLE} --gtest_list_tests --gtest_filter=-*/* OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "(^|\n)[A-Za-z0-9_]+\\.(\n  [^\n]+)+" suites "${listed}")
set(text "")
foreach(suite ${suites})
  string(REGEX REPLACE "^\n?([A-Za-z0-9_]+)\\..*" "\\1" name "${suite}")
  string(REGEX MATCHALL "\n  " cases "${suite}")
  list(LENGTH cases cases) # long ones begin first
  string(APPEND text "add_test(\"${name}\" \"${EXECUTABLE}\" \"--gtest_filter=${name}.*\" \"--gtest_output=xml:${RESULTS}/${name}.xml\")\n"
         "set_tests_properties(\"${name}\" PROPERTIES TIMEOUT ${TIMEOUT} COST ${cases} WORKING_DIRECTORY \"${DIRECTORY}\")\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
