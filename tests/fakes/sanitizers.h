/*
 * Whether what is tested was built with a sanitizer. The tests' own code may have been built without it, so the macros
 * of the compiler don't tell.
 */
#ifndef SHARDLEDGER_TESTS_SANITIZERS_H
#define SHARDLEDGER_TESTS_SANITIZERS_H

#include <string_view>

/* SL_SANITIZE: as -fsanitize= has it. */
constexpr bool TSAN = std::string_view(SL_SANITIZE).find("thread") != std::string_view::npos;
constexpr bool SANITIZED = TSAN || std::string_view(SL_SANITIZE).find("address") != std::string_view::npos;

#endif
