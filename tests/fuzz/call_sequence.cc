#include "call_sequence.h"

#include "plugin/format/log_format.h"

#include <iterator>

constexpr uint32_t THREADS = 4, MODULES_MAX = 6;
constexpr uint64_t MIB = 1 << 20, SEGMENT = 20 * MIB;
static const char *const FQNS[MODULES_MAX] = {"", "blocks.0", "blocks.1", "blocks.1.mlp", "blocks.2", "head"};
static const char *const DOMAINS[] = {SL_NVTX_DOMAIN, SL_NVTX_DOMAIN, "", "NCCL", "theirs"};
static const char *const FSDP_NAMES[] = {"FSDP::pre_forward",
                                         "FSDP::all_gather",
                                         "FSDP::all_gather_copy_out",
                                         "FSDP::post_forward",
                                         "FSDP::pre_backward",
                                         "FSDP::post_backward_accumulate",
                                         "FSDP::post_backward_reshard",
                                         "FSDP::post_backward_reduce",
                                         "FSDP::root_post_backward_callback",
                                         "FSDP::forward_prefetch for",
                                         "FullyShardedDataParallel._pre_forward",
                                         "FullyShardedDataParallel._post_backward_hook",
                                         "DistributedDataParallel.forward",
                                         "Optimizer.step#AdamW.step",
                                         "Optimizer.zero_grad#AdamW.zero_grad",
                                         "nccl:_all_gather_base",
                                         "nccl:_reduce_scatter_base"};
static const char *const TAGS[] = {"param", "sharded_param", "buffer", "gradient",         "sharded_grad", "optstate",
                                   "input", "mine",          "",       "cublas_workspace", "activation"};
static const uint64_t SIZES[] = {1, 512, 1000, 4096, 70000, MIB, 3 * MIB, 9 * MIB};

template <class Value, size_t count> static Value choose(const Value (&all)[count], uint8_t number) {
  return all[number % count];
}

LogBuilder::Thread &CallSequence::thread() {
  return log.thread(current).at(now);
}

uint32_t CallSequence::module(uint8_t number) const {
  if (!legal && number >= 250)
    return number == 250 ? UINT32_MAX : number; /* one that nobody defined */
  return module_count ? 1 + number % module_count : 0;
}

std::string CallSequence::module_name(uint8_t number) const {
  return FQNS[number % MODULES_MAX];
}

void CallSequence::modules_define(Input &input) {
  module_count = input.number<uint8_t>() % (MODULES_MAX + 1);
  for (uint32_t i = 0; i < module_count; i++) {
    const uint8_t choice = input.number<uint8_t>();
    const uint32_t id = i + 1, parent = i ? (legal ? 1 : choice % 8) : 0;
    const uint32_t flags = (choice & 64 ? SL_MODULE_FSDP : 0) | (i ? 0 : SL_MODULE_ROOT);
    log.module(id, parent, FQNS[i], i ? "Block" : "Model", flags, i ? 1 : 0);
    if (!legal && choice % 32 == 31)
      log.module(choice, id, FQNS[i], "Again", flags, 1);
  }
}

/* ---- ranges ---- */

void CallSequence::push(const std::string &name, uint16_t category, uint64_t value, const std::string &domain) {
  stacks[current].push_back({domain, category});
  thread().range_push(name, category, value, domain);
}

/* In order: of the innermost range. Of any other it is what a program may do that mixes its domains. */
void CallSequence::pop(const std::string &domain) {
  auto &stack = stacks[current];
  if (!legal) {
    if (!stack.empty())
      stack.pop_back();
    thread().range_pop(domain);
    return;
  }
  if (stack.empty() || stack.back().category == SL_KIND_backward)
    return; /* the whole backward ends by a call of its own */
  thread().range_pop(stack.back().domain);
  stack.pop_back();
}

void CallSequence::range_call(Input &input) {
  const uint8_t what = input.number<uint8_t>(), value = input.number<uint8_t>();
  const std::string domain = choose(DOMAINS, value / 8);
  switch (what % 8) {
  case 0:
  case 1: pop(domain); return;
  case 2: push("mine", SL_KIND_user, 0, domain); return;
  case 3: {
    const std::string name = choose(FSDP_NAMES, what / 8), fqn = module_name(value);
    const bool prefetch = name.compare(0, 22, "FSDP::forward_prefetch") == 0;
    push(fqn.empty() || name.compare(0, 6, "FSDP::") ? name
         : prefetch                                  ? name + " " + fqn
                                                     : name + " (" + fqn + ")",
         SL_KIND_record_function, 0, SL_NVTX_DOMAIN);
    return;
  }
  case 4: {
    static const uint16_t kinds[] = {SL_KIND_forward, SL_KIND_recompute, SL_KIND_eval};
    const uint32_t id = module(value);
    if (id || !legal)
      push(module_name(id ? id - 1 : 0), choose(kinds, what / 8), id, SL_NVTX_DOMAIN);
    return;
  }
  case 5: {
    static const uint16_t kinds[] = {SL_KIND_optimizer_step, SL_KIND_zero_grad, SL_KIND_input, SL_KIND_checkpoint};
    push("own", choose(kinds, what / 8), value, SL_NVTX_DOMAIN);
    return;
  }
  case 6: {
    const uint64_t id = legal ? next_range++ : value % 16;
    started.push_back(id);
    thread().range_start(id, "started", legal ? (uint16_t)SL_KIND_user : what / 8, value, domain);
    return;
  }
  default:
    if (!legal && what & 8) {
      thread().range_end(value % 16);
    } else if (!started.empty()) {
      const size_t at = value % started.size();
      thread().range_end(started[at]);
      started.erase(started.begin() + (long)at);
    }
  }
}

void CallSequence::step_call(Input &input) {
  const uint8_t what = input.number<uint8_t>();
  if (!legal) {
    const uint64_t number = what % 4 ? next_step++ : what / 4 % 8, id = 1 + what / 32;
    if (what % 3 == 0)
      thread().range_end(id);
    else if (what % 16 == 15)
      push("step", SL_KIND_step, number, SL_NVTX_DOMAIN);
    else
      thread().range_start(id, "step", SL_KIND_step, number);
    return;
  }
  if (step_range) {
    thread().range_end(step_range);
    step_range = 0;
  } else {
    step_range = next_range++;
    thread().range_start(step_range, "step", SL_KIND_step, next_step++);
  }
}

void CallSequence::backward_call(Input &input) {
  const uint8_t what = input.number<uint8_t>();
  if (!legal && what % 4 == 0) {
    push("backward", SL_KIND_backward, what / 4 % 4 ? 0 : module(what / 16), SL_NVTX_DOMAIN);
    return;
  }
  if (what % 4 == 1) {
    if (!backward_thread) {
      push("backward", SL_KIND_backward, 0, SL_NVTX_DOMAIN);
      backward_thread = current;
    } else {
      auto &stack = stacks[backward_thread];
      if (legal && stack.back().category != SL_KIND_backward)
        return; /* something is open in it */
      log.thread(backward_thread).at(now).range_pop();
      if (!stack.empty())
        stack.pop_back();
      backward_thread = 0;
    }
  } else if (what % 4 == 2 && (module_count || !legal) && (backward_thread || !legal)) {
    module_backwards.push_back(next_range);
    thread().range_start(next_range++, "module", SL_KIND_backward, module(what / 4));
  } else if (what % 4 == 3 && !module_backwards.empty()) {
    const size_t at = what / 4 % module_backwards.size();
    thread().range_end(module_backwards[at]);
    module_backwards.erase(module_backwards.begin() + (long)at);
  }
}

/* ---- memory ---- */

void CallSequence::allocate(uint32_t number, uint64_t bytes) {
  Device &device = devices[number];
  const uint64_t rounded = (bytes + 511) / 512 * 512;
  auto at = device.blocks.begin();
  /* The first that is large enough; small ones are split to the last 512 bytes. */
  while (at != device.blocks.end() && !(at->second.free && at->second.bytes >= rounded))
    ++at;
  if (at == device.blocks.end()) {
    if (driver_recorded) {
      thread().append(sl_event_driver_allocation{device.next_segment, SEGMENT, 0, log.string("libc10_cuda.so"),
                                                 log.string("cuMemAlloc_v2"), number, SL_MEMORY_DEVICE});
      now++;
    }
    thread().allocator(SL_SEGMENT_ALLOC, device.next_segment, SEGMENT, number);
    at = device.blocks.emplace(device.next_segment, Device::Block{SEGMENT, true, true}).first;
    device.next_segment += 2 * SEGMENT;
    now++;
  }
  const uint64_t rest = at->second.bytes - rounded;
  if (rounded <= MIB ? rest >= 512 : rest > MIB) {
    device.blocks.emplace(at->first + rounded, Device::Block{rest, true, at->second.last});
    at->second.bytes = rounded;
    at->second.last = false;
  }
  at->second.free = false;
  thread().allocator(SL_ALLOC, at->first, bytes, number);
}

void CallSequence::release(uint32_t number, uint8_t which) {
  Device &device = devices[number];
  std::vector<uint64_t> held;
  for (const auto &[address, block] : device.blocks)
    if (!block.free)
      held.push_back(address);
  if (held.empty())
    return;
  auto at = device.blocks.find(held[which % held.size()]);
  thread().allocator(SL_FREE_REQUESTED, at->first, at->second.bytes, number);
  now++;
  thread().allocator(SL_FREE_COMPLETED, at->first, at->second.bytes, number);
  at->second.free = true;
  const auto next = std::next(at);
  if (!at->second.last && next->second.free) {
    at->second.bytes += next->second.bytes;
    at->second.last = next->second.last;
    device.blocks.erase(next);
  }
  if (at != device.blocks.begin()) {
    const auto before = std::prev(at);
    if (!before->second.last && before->second.free) {
      before->second.bytes += at->second.bytes;
      before->second.last = at->second.last;
      device.blocks.erase(at);
    }
  }
}

void CallSequence::memory_call(Input &input) {
  const uint8_t what = input.number<uint8_t>(), value = input.number<uint8_t>();
  const uint32_t device = value % 8 ? 0 : 1;
  const uint64_t address = (1ull << 40) + value % 32 * 512ull;
  switch (what % 8) {
  case 0:
  case 1:
  case 2: allocate(device, choose(SIZES, what / 8)); return;
  case 3:
  case 4: release(device, value / 8); return;
  case 5: {
    const auto &blocks = devices[device].blocks;
    const uint64_t tagged = blocks.empty() ? address : std::next(blocks.begin(), value / 8 % blocks.size())->first;
    thread().tag(tagged, choose(TAGS, what / 8), value & 64 ? module(value % 4) : 0, "weight", device);
    return;
  }
  case 6: thread().allocator(SL_OUT_OF_MEMORY, 1000, choose(SIZES, value), device); return;
  default:
    if (!legal) /* anything, of a block that may not be there */
      thread().allocator(what / 8 % 12, address, value & 1 ? 512 : SEGMENT, value % 3, value / 64 % 2, value / 128);
  }
}

/* Other libraries' calls; PyTorch's come with its segments. */
void CallSequence::driver_call(Input &input) {
  const uint8_t what = input.number<uint8_t>(), value = input.number<uint8_t>();
  if (legal && !driver_recorded)
    return;
  const char *const library = !legal && value & 1 ? "libc10_cuda.so" : "libnccl.so.2";
  const char *const function = !legal && value & 2 ? "cuMemAllocAsync" : "cuMemAlloc_v2";
  const uint64_t address = (1ull << 44) + value / 4 % 16 * SEGMENT;
  const uint32_t owner = log.string(library), api = log.string(function);
  bool &held = driver_held[address];
  switch (what % 4) {
  case 0:
    if (!legal || !held)
      thread().append(sl_event_driver_allocation{address, choose(SIZES, what / 4), 0, owner, api, value / 64 % 2u,
                                                 legal ? (uint32_t)SL_MEMORY_DEVICE : what / 32u});
    held = true;
    return;
  case 1:
    if (!legal || held)
      thread().append(sl_event_driver_free{address, 0, owner, api});
    held = false;
    return;
  case 2: thread().append(sl_event_driver_failure{choose(SIZES, what / 4), owner, api, 2, 0}); return;
  default:
    thread().append(
        sl_event_device_sample{1ull << 36, (1ull << 36) - (legal ? 1ull << 35 : value * MIB), value % 2u, 0});
    return;
  }
}

void CallSequence::other_call(Input &input) {
  const uint8_t what = input.number<uint8_t>(), value = input.number<uint8_t>();
  switch (what % 6) {
  case 0: thread().gap("log", "no segment was ready", value); return;
  case 1: thread().cut(); return;
  case 2: thread().append(sl_event_allocator_stats{value, value, value, value, log.sequence(0), 0}); return;
  case 3: thread().append(sl_event_process_memory{value * MIB, MIB, 0, 1}); return;
  case 4:
    if (!legal)
      now -= value * 1000;
    return;
  default:
    if (!legal)
      gap_call(input);
  }
}

/* What stands for a part that keep-last dropped, true or not. */
void CallSequence::gap_call(Input &input) {
  const uint8_t what = input.number<uint8_t>(), value = input.number<uint8_t>();
  LogBuilder::Thread &dropped = log.thread(SL_DROPPED_THREAD).at(now);
  const uint64_t address = (1ull << 40) + value % 32 * 512ull;
  switch (what % 4) {
  case 0:
    dropped.append(sl_event_dropped_allocator{value % 2u, log.sequence(value % 2), log.sequence(value % 2), 0});
    return;
  case 1:
    dropped.append(sl_event_kept_block{address, value & 1 ? 512u : 1024u, 512, value & 2 ? now - value * 1000 : 0,
                                       value / 4u, 1001, what / 4u, value % 2u, log.place(value % 2),
                                       (uint8_t)(value / 8 % 4), (uint8_t)(value / 32 % 2), 0});
    return;
  case 2:
    dropped.append(sl_event_kept_range{now - value * 1000, module(value), value & 1 ? value / 2 % 16u : 0,
                                       1 + value % THREADS, 1001, log.string(choose(FSDP_NAMES, what / 4)),
                                       log.domain(choose(DOMAINS, value / 8)), (uint16_t)(what / 4 % 18)});
    return;
  default: dropped.append(sl_event_dropped{now - value * 1000, now, value, what / 4u, value / 4u}); return;
  }
}

/* ---- the sequence ---- */

void CallSequence::call(Input &input) {
  const uint8_t what = input.number<uint8_t>();
  now += 1 + (legal || what & 128 ? what / 16 % 8 * 1000 : 0);
  switch (what % 16) {
  case 0:
  case 1:
  case 2:
  case 3:
  case 4: range_call(input); return;
  case 5:
  case 6: backward_call(input); return;
  case 7: step_call(input); return;
  case 8:
  case 9:
  case 10:
  case 11: memory_call(input); return;
  case 12: driver_call(input); return;
  case 13: other_call(input); return;
  default: current = 1 + what / 16 % THREADS; return;
  }
}

/* As a program that ends in order leaves it. */
void CallSequence::end_all() {
  for (auto &[number, stack] : stacks) {
    current = number;
    for (; !stack.empty(); stack.pop_back(), now++)
      thread().range_pop(stack.back().domain);
  }
  if (step_range)
    thread().range_end(step_range);
  now++;
  thread().process_end();
}

void CallSequence::play(Input &input) {
  log.info("rank", "0").info("world_size", "1");
  log.info("allocator_backend", !legal && input.number<uint8_t>() % 8 == 0 ? "cudaMallocAsync" : "native");
  log.domain(SL_NVTX_DOMAIN);
  log.domain("NCCL");
  log.place(0);
  modules_define(input);
  const uint8_t facts = input.number<uint8_t>();
  const bool ends = facts & 1;
  driver_recorded = facts & 2;
  while (!input.empty())
    call(input);
  if (ends)
    end_all();
}
