/* The viewer's commands, in this process. */
#ifndef SHARDLEDGER_TESTS_FUZZ_COMMANDS_H
#define SHARDLEDGER_TESTS_FUZZ_COMMANDS_H

#include <cstddef>
#include <string>

extern const size_t command_count;

/* Runs one of the commands that read a ledger (their number modulo command_count), with its output thrown away. */
void command_run(size_t number, const std::string &ledger);

#endif
