/*
 * Sequences of calls that a process could make, or could not, as a log: an input's bytes choose one call after another.
 *
 * What PyTorch and the companion do is kept in mind: which ranges, steps and allocations are open on which thread. A
 * legal sequence makes only calls that fit this; any other makes whatever it is told to.
 */
#ifndef SHARDLEDGER_TESTS_CALL_SEQUENCE_H
#define SHARDLEDGER_TESTS_CALL_SEQUENCE_H

#include "fuzz.h"

#include "fakes/log_builder.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

class CallSequence {
public:
  CallSequence(LogBuilder &log, bool legal) : log(log), legal(legal) {}

  /* Makes all calls of an input. */
  void play(Input &input);

private:
  struct Open { /* a range that was pushed */
    std::string domain;
    uint16_t category;
  };
  struct Device { /* as PyTorch's allocator has it: blocks by their address */
    struct Block {
      uint64_t bytes;
      bool free, last; /* last: of its segment */
    };
    std::map<uint64_t, Block> blocks;
    uint64_t next_segment;
  };

  LogBuilder::Thread &thread();
  void modules_define(Input &input);
  void call(Input &input);
  void range_call(Input &input);
  void step_call(Input &input);
  void backward_call(Input &input);
  void memory_call(Input &input);
  void driver_call(Input &input);
  void other_call(Input &input);
  void gap_call(Input &input);
  void push(const std::string &name, uint16_t category, uint64_t value, const std::string &domain);
  void pop(const std::string &domain);
  void allocate(uint32_t device, uint64_t bytes);
  void release(uint32_t device, uint8_t which);
  void end_all();
  uint32_t module(uint8_t number) const;
  std::string module_name(uint8_t number) const;

  LogBuilder &log;
  const bool legal;
  uint64_t now = 1'000'000'000'000'000'000;
  uint32_t current = 1; /* thread */
  uint32_t module_count = 0;
  uint64_t next_range = 1000, step_range = 0, next_step = 0;
  uint32_t backward_thread = 0;                    /* the one that called it; 0: none is open */
  std::map<uint32_t, std::vector<Open>> stacks;    /* by thread */
  std::vector<uint64_t> module_backwards, started; /* ids of ranges */
  Device devices[2] = {{{}, 1ull << 40}, {{}, 1ull << 41}};
  bool driver_recorded = false;
  std::map<uint64_t, bool> driver_held; /* by address: what other libraries have of the driver */
};

#endif
