/*
 * Sites: where in the code memory is asked for. Part of torch_bridge.cpp, which includes this once.
 *
 * PyTorch's allocator asks a context recorder at each allocation, before it takes its lock, and hands the result on in
 * the entry of its trace. Our recorder returns the site: a Python call stack and an operator, each pair made once.
 *
 *   recorder          site of this thread, now ──────────────────────────┐ no lock of the allocator; may take the GIL
 *   trace tracker     entry.context_ → sl_allocator_site, then the event ┘ under that lock; neither GIL nor PyTorch
 *
 * A thread without Python frames, such as autograd's, has those of the forward operator whose backward it runs:
 * record_function gives both the same number. Operators are followed in a sample of steps only; the recorder is on in
 * these and outside of steps, there within a budget. A memory history that the user turned on is left alone.
 */
#ifndef SHARDLEDGER_TORCH_SITES_H
#define SHARDLEDGER_TORCH_SITES_H

#include "events.h"
#include "shardledger.h"
#include "torch_frames.h"
#include "torch_uses.h"

#include <ATen/record_function.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <time.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <vector>

namespace sites {

/* BETWEEN: as OPERATORS, for a while, from the end of a step that is followed until the next one's begin. */
enum Mode { OFF = 0, STACKS = 1, OPERATORS = 2, BETWEEN = 3 };

/* PyTorch casts contexts to its own class, so a site is one; it has no frames of that class. */
struct Site : torch::CapturedTraceback {
  uint32_t id = 0;
};

constexpr uint32_t sites_max = 1 << 20; /* a program that makes up code has no more of them */

std::atomic<int> mode{OFF};

decltype(sl_site) *define_site;

/* ---- what is known already ---- */

struct SiteKey {
  uint32_t frame, operator_id;
  int stack_of;
  bool operator==(const SiteKey &other) const {
    return frame == other.frame && operator_id == other.operator_id && stack_of == other.stack_of;
  }
};
struct Hash {
  size_t operator()(const SiteKey &key) const {
    return frames::mix(uint64_t{key.frame} << 32 | key.operator_id, static_cast<uint64_t>(key.stack_of));
  }
};

/* A name that record_function gives, and what it says. */
struct Operator {
  std::string name;
  uint32_t id;
  bool is_dispatched;  /* one of the dispatcher, no autograd.Function and the like */
  bool is_engine;      /* autograd's range around a backward operator, its hooks and sums: no operator itself */
  bool is_factory;     /* it allocates for whoever calls it */
  bool only_looks;     /* it reads and writes nothing */
  bool is_passed_over; /* it does not count inside of another one */

  Operator(const char *text, uint32_t id)
      : name(text), id(id), is_dispatched(std::strstr(text, "::") != nullptr),
        is_engine(std::strncmp(text, "autograd::engine::", 18) == 0),
        is_factory(std::strncmp(text, "aten::empty", 11) == 0 || std::strcmp(text, "aten::resize_") == 0 ||
                   std::strncmp(text, "aten::new_empty", 15) == 0),
        only_looks(uses::only_looks(text)), is_passed_over(is_dispatched && (is_factory || uses::only_views(text))) {}
};

/* Never destroyed: threads may allocate while the process ends. */
struct Known {
  std::mutex mutex; /* nothing is called meanwhile that could wait for the GIL */
  std::unordered_map<SiteKey, std::shared_ptr<Site>, Hash> sites;
  std::unordered_map<std::string, Operator> operators;
  std::unordered_map<uint64_t, uint32_t> forwards; /* of a thread's sequence number → frame, in this sampled step */
};
Known &known() {
  static Known *const all = new Known;
  return *all;
}

/* ---- operators of sampled steps ---- */

struct Operators {                /* of one thread */
  const Operator *name = nullptr; /* the innermost that asks for memory for itself */
  bool in_dispatched = false;     /* one of the dispatcher's runs: what it calls is no Python of the user's */
  bool stack_known = false;
  bool made = false;    /* memory was asked for in the outermost one that is open */
  uint32_t stack = 0;   /* of the outermost dispatched one */
  uint32_t forward = 0; /* of the forward operator, within a backward one */
};

/* One for each open operator: their memory is used again, since there are thousands a step. */
struct Before : at::ObserverContext {
  Operators operators;
  const Operator *name;
  uses::Open uses;

  static void *operator new(size_t size);
  static void operator delete(void *memory) noexcept;
};

/* Of one thread. */
struct Unused {
  static constexpr int most = 16; /* operators nest less deep, mostly */
  void *list[most];
  int count = 0;
  ~Unused() {
    while (count)
      std::free(list[--count]);
    count = most; /* full: what ends later is freed */
  }
};

/* The latest sites of a thread, each in the slot of its key. */
struct LatestSites {
  static constexpr size_t slots = 256;
  struct {
    SiteKey key;
    const std::shared_ptr<Site> *site; /* kept for ever */
  } list[slots];
};

/* What a thread has of its own, in one place: to find a thread's variable in a library takes a call. */
struct Thread {
  Operators current;
  bool inside = false; /* a recorder, or a callback */
  uses::Held held;
  Unused unused;
  LatestSites sites{};
  const Operator *operators[2048]{}; /* the latest ones, each in the slot of its name's address */
  frames::LastStack last_stack;
};
thread_local Thread this_thread;

void *Before::operator new(size_t size) {
  Unused &unused = this_thread.unused;
  if (unused.count > 0 && unused.count < Unused::most)
    return unused.list[--unused.count];
  void *memory = std::malloc(size);
  return memory ? memory : throw std::bad_alloc();
}

void Before::operator delete(void *memory) noexcept {
  Unused &unused = this_thread.unused;
  if (unused.count < Unused::most - 1)
    unused.list[unused.count++] = memory;
  else
    std::free(memory);
}

/* After a step that is followed a program may do anything, an evaluation say: so many operators are followed. */
constexpr int64_t between_max = 20000;
std::atomic<int64_t> between_left{0};

/* false: it was the last one. */
bool between_goes_on() {
  const int64_t left = between_left.fetch_sub(1, std::memory_order_relaxed);
  if (left == 0 && uses::tell)
    uses::watch(0, nullptr);
  return left > 0;
}

/* Found by the text's address, which mostly stays the same: its characters are compared all the same. */
const Operator *operator_of(Thread &thread, const char *name) {
  const Operator *&slot =
      thread.operators[frames::mix(reinterpret_cast<uintptr_t>(name), 0) % std::size(thread.operators)];
  if (!slot || std::strcmp(slot->name.c_str(), name) != 0) {
    Known &all = known();
    std::lock_guard<std::mutex> lock(all.mutex);
    slot = &all.operators.try_emplace(name, name, static_cast<uint32_t>(all.operators.size() + 1)).first->second;
  }
  return slot;
}

uint64_t forward_key(uint64_t thread, int64_t sequence) {
  return thread << 40 ^ static_cast<uint64_t>(sequence);
}

/* The stack of a forward operator, for its backward one. */
void forward_begins(Thread &thread, const at::RecordFunction &function) {
  Operators &current = thread.current;
  if (!current.stack_known && !thread.inside) {
    thread.inside = true;
    current.stack = frames::stack_now(thread.last_stack);
    current.stack_known = true;
    thread.inside = false;
  }
  if (current.stack) {
    std::lock_guard<std::mutex> lock(known().mutex);
    known().forwards[forward_key(at::RecordFunction::currentThreadId(), function.seqNr())] = current.stack;
  }
}

/* An inner one that only makes a view, or memory for the one around it, is nothing of its own: most of them are. */
std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction &function) {
  Thread &thread = this_thread;
  Operators &current = thread.current;
  const Operator *name = operator_of(thread, function.name());
  if (name->is_engine || (mode.load(std::memory_order_relaxed) == BETWEEN && !between_goes_on()))
    return nullptr;
  const bool is_backward = function.scope() == at::RecordScope::BACKWARD_FUNCTION;
  if (current.in_dispatched && name->is_passed_over && !is_backward) {
    if (function.seqNr() >= 0)
      forward_begins(thread, function);
    return nullptr;
  }
  auto before = std::make_unique<Before>();
  before->operators = current;
  before->name = name;
  if (is_backward) {
    std::lock_guard<std::mutex> lock(known().mutex);
    auto found = known().forwards.find(forward_key(function.forwardThreadId(), function.seqNr()));
    current = {name, false, false, false, 0, found != known().forwards.end() ? found->second : 0};
    return before;
  }
  const bool is_outermost = !name->is_dispatched || !current.in_dispatched;
  if (uses::tell && is_outermost) {
    before->uses.begin(thread.held);
    current.made = false;
  }
  if (uses::tell && !name->only_looks)
    uses::add_all(thread.held, function.inputs(), is_outermost ? before->uses.first : 0);
  if (!current.name || !name->is_factory)
    current.name = name;
  if (is_outermost) {
    current.in_dispatched = name->is_dispatched; /* an autograd.Function runs Python */
    current.stack_known = false;
  }
  if (function.seqNr() >= 0)
    forward_begins(thread, function);
  return before;
}

void tell_uses(Thread &thread, const Before &before);

/* After a backward operator autograd sums gradients up, which is still of the same forward one. */
void operator_ends(const at::RecordFunction &function, at::ObserverContext *context) {
  if (!context)
    return;
  Thread &thread = this_thread;
  Operators &current = thread.current;
  auto *before = static_cast<Before *>(context);
  tell_uses(thread, *before);
  before->uses.forget(thread.held);
  const bool made = current.made && !before->uses.is_open;
  const uint32_t forward = function.scope() == at::RecordScope::BACKWARD_FUNCTION ? current.forward : 0;
  current = before->operators;
  current.made |= made;
  if (forward && !current.name)
    current.forward = forward;
}

void forget_forwards() {
  std::lock_guard<std::mutex> lock(known().mutex);
  known().forwards.clear();
}

/* ---- the site of this thread ---- */

/* Outside of steps a program may allocate all the time: a server, a loader. So many stacks at once, and a second. */
struct Budget {
  static constexpr int64_t most = 20000, per_second = 500;
  std::atomic<int64_t> spent{0}, since{0};

  bool take() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    int64_t last = since.load(std::memory_order_relaxed);
    if (now.tv_sec != last && since.compare_exchange_strong(last, now.tv_sec, std::memory_order_relaxed)) {
      const int64_t earned = last ? (now.tv_sec - last) * per_second : 0;
      const int64_t left = spent.load(std::memory_order_relaxed);
      spent.fetch_sub(earned < left ? earned : left, std::memory_order_relaxed);
    }
    if (spent.load(std::memory_order_relaxed) >= most)
      return false;
    spent.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
};
Budget budget;

/* Stays where it is; NULL when there are too many. */
const std::shared_ptr<Site> *site_make(const SiteKey &key, const char *operator_name) {
  Known &all = known();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.sites.find(key);
  if (found != all.sites.end())
    return &found->second;
  if (all.sites.size() == sites_max)
    return nullptr;
  auto site = std::make_shared<Site>();
  site->id = static_cast<uint32_t>(all.sites.size() + 1);
  const auto made = all.sites.emplace(key, site).first;
  define_site(site->id, key.frame, operator_name, key.stack_of);
  return &made->second;
}

const std::shared_ptr<Site> *site_of(Thread &thread, uint32_t frame, const Operator *name, int stack_of) {
  if (!frame && !name)
    return nullptr;
  const SiteKey key = {frame, name ? name->id : 0, stack_of};
  auto &latest = thread.sites.list[Hash()(key) % LatestSites::slots];
  if (!latest.site || !(latest.key == key))
    latest = {key, site_make(key, name ? name->name.c_str() : "")};
  return latest.site;
}

/* Of this thread, now; NULL where nothing is known. with_stack: the stack may be read where it is not known yet. */
const std::shared_ptr<Site> *site_now(Thread &thread, bool with_stack) {
  Operators &current = thread.current;
  uint32_t stack = 0;
  if (current.stack_known)
    stack = current.stack;
  else if (with_stack)
    stack = frames::stack_now(thread.last_stack);
  if (current.in_dispatched)
    current.stack = stack, current.stack_known = true;
  const bool of_forward = !stack && current.forward;
  return site_of(thread, of_forward ? current.forward : stack, current.name,
                 of_forward ? SL_STACK_OF_FORWARD : SL_STACK_OF_CALLER);
}

uint32_t id_of(const std::shared_ptr<Site> *site) {
  return site ? (*site)->id : 0;
}

void tell_uses(Thread &thread, const Before &before) {
  const bool made = thread.current.made && !before.name->only_looks;
  if (!before.uses.has_any(thread.held, made) || !uses::tell)
    return;
  /* The site where it is known: nobody waits for the GIL here. */
  before.uses.end(thread.held, id_of(site_now(thread, false)), made);
}

/* For the plugin, at kernel launches of this thread. */
int in_operator() {
  return this_thread.current.in_dispatched;
}

/* The allocator's context recorder: called without its lock. Never throws. */
std::shared_ptr<c10::GatheredContext> record() {
  const int now = mode.load(std::memory_order_relaxed);
  Thread &thread = this_thread;
  if (thread.inside || now == OFF)
    return nullptr;
  thread.inside = true;
  const std::shared_ptr<Site> *site = nullptr;
  try {
    site = site_now(thread, now == OPERATORS || budget.take());
    thread.current.made = true;
  } catch (...) {
    /* No memory: this allocation has no site. */
  }
  thread.inside = false;
  return site ? *site : nullptr;
}

/* ---- on and off ---- */

bool start(decltype(sl_frame) *frame_fn, decltype(sl_site) *site_fn, const char *own_files) {
  define_site = site_fn;
  return frames::start(frame_fn, own_files);
}

/* Callbacks of record_function, while operators are followed. PyTorch copies inputs for whoever wants them, which costs
 * more than all that is done with them: those of backward operators are not asked for. */
void follow_operators(bool wanted) {
  static const std::array<at::CallbackHandle, 2> handles = [] {
    const auto with = [](bool inputs, at::RecordScope scope) {
      return at::addGlobalCallback(
          at::RecordFunctionCallback(operator_begins, operator_ends).needsInputs(inputs).scopes({scope}));
    };
    return std::array{with(uses::tell != nullptr, at::RecordScope::FUNCTION),
                      with(false, at::RecordScope::BACKWARD_FUNCTION)};
  }();
  for (const at::CallbackHandle handle : handles)
    wanted ? at::reenableCallback(handle) : at::disableCallback(handle);
  if (uses::tell)
    uses::watch(wanted, wanted ? in_operator : nullptr);
}

/* PyTorch's own interface got more arguments over time. A trace of one entry is the shortest. */
template <typename History, typename Context> void record_history(History history, bool on, Context when) {
  using Fn = std::shared_ptr<c10::GatheredContext> (*)();
  Fn recorder = on ? record : nullptr;
  if constexpr (std::is_invocable_v<History, bool, Fn, size_t, Context, bool, std::vector<std::string>>)
    history(on, recorder, 1, when, false, std::vector<std::string>());
  else if constexpr (std::is_invocable_v<History, bool, Fn, size_t, Context, bool>)
    history(on, recorder, 1, when, false);
  else
    history(on, recorder, 1, when);
}

} // namespace sites

#endif
