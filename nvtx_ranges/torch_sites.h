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
 * Frames are found by code object and instruction, so that their names are read once. Code objects are kept alive.
 */
#ifndef SHARDLEDGER_TORCH_SITES_H
#define SHARDLEDGER_TORCH_SITES_H

#include "events.h"
#include "shardledger.h"
#include "torch_uses.h"

#include <ATen/record_function.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

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

constexpr uint32_t frames_max = 1 << 20, sites_max = 1 << 20; /* a program that makes up code has no more of them */
constexpr int depth_max = 256;                                /* innermost frames of a call stack */

std::atomic<int> mode{OFF};

/* ---- Python, by the names of its stable interface ---- */

struct Python {
  void *(*get_frame)() = nullptr; /* borrowed */
  void *(*get_back)(void *) = nullptr;
  void *(*get_code)(void *) = nullptr;
  int (*get_instruction)(void *) = nullptr; /* since 3.11; before, the line stands for it */
  int (*get_line)(void *) = nullptr;
  void *(*get_attribute)(void *, const char *) = nullptr;
  const char *(*as_text)(void *) = nullptr;
  void (*take_error)(void **, void **, void **) = nullptr; /* and gives it back: */
  void (*give_error)(void *, void *, void *) = nullptr;
  void (*clear_error)() = nullptr;
  void (*keep)(void *) = nullptr;
  void (*drop)(void *) = nullptr;
  int (*ensure)() = nullptr;
  void (*release)(int) = nullptr;
  void *(*thread_state)() = nullptr;
  int (*finalizing)() = nullptr;

  template <typename Function> static bool find(Function &function, const char *name) {
    function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
    return function != nullptr;
  }

  bool load() {
    find(get_instruction, "PyFrame_GetLasti");
    return find(get_frame, "PyEval_GetFrame") && find(get_back, "PyFrame_GetBack") &&
           find(get_code, "PyFrame_GetCode") && find(get_line, "PyFrame_GetLineNumber") &&
           find(get_attribute, "PyObject_GetAttrString") && find(as_text, "PyUnicode_AsUTF8") &&
           find(take_error, "PyErr_Fetch") && find(give_error, "PyErr_Restore") && find(clear_error, "PyErr_Clear") &&
           find(keep, "Py_IncRef") && find(drop, "Py_DecRef") && find(ensure, "PyGILState_Ensure") &&
           find(release, "PyGILState_Release") && find(thread_state, "PyGILState_GetThisThreadState") &&
           (find(finalizing, "Py_IsFinalizing") || find(finalizing, "_Py_IsFinalizing"));
  }

  /* An error that is on its way through the program stays so, whatever is asked meanwhile. */
  struct PendingError {
    const Python &python;
    void *type = nullptr, *value = nullptr, *traceback = nullptr;
    explicit PendingError(const Python &python) : python(python) {
      python.take_error(&type, &value, &traceback);
    }
    ~PendingError() {
      python.give_error(type, value, traceback);
    }
  };

  /* "" where there is none. */
  std::string text_of(void *object, const char *attribute) const {
    void *value = get_attribute(object, attribute);
    const char *text = value ? as_text(value) : nullptr;
    std::string copy = text ? text : "";
    if (!text)
      clear_error();
    if (value)
      drop(value);
    return copy;
  }
};

Python python;
decltype(sl_frame) *define_frame;
decltype(sl_site) *define_site;

/* ---- what is known already ---- */

struct FrameKey {
  uint32_t caller;
  int instruction;
  void *code;
  bool operator==(const FrameKey &other) const {
    return caller == other.caller && instruction == other.instruction && code == other.code;
  }
};
struct SiteKey {
  uint32_t frame, operator_id;
  int stack_of;
  bool operator==(const SiteKey &other) const {
    return frame == other.frame && operator_id == other.operator_id && stack_of == other.stack_of;
  }
};
struct Hash {
  static size_t mix(uint64_t a, uint64_t b) {
    uint64_t hash = (a ^ b * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
    return hash ^ hash >> 32;
  }
  size_t operator()(const FrameKey &key) const {
    return mix(reinterpret_cast<uint64_t>(key.code),
               uint64_t{key.caller} << 32 | static_cast<uint32_t>(key.instruction));
  }
  size_t operator()(const SiteKey &key) const {
    return mix(uint64_t{key.frame} << 32 | key.operator_id, static_cast<uint64_t>(key.stack_of));
  }
};

/* A name that record_function gives, and what it says. */
struct Operator {
  std::string name;
  uint32_t id;
  bool is_dispatched; /* one of the dispatcher, no autograd.Function and the like */
  bool is_engine;     /* autograd's range around a backward operator, its hooks and sums: no operator itself */
  bool is_factory;    /* it allocates for whoever calls it */
  bool only_looks;    /* it reads and writes nothing */

  Operator(const char *text, uint32_t id)
      : name(text), id(id), is_dispatched(std::strstr(text, "::") != nullptr),
        is_engine(std::strncmp(text, "autograd::engine::", 18) == 0),
        is_factory(std::strncmp(text, "aten::empty", 11) == 0 || std::strcmp(text, "aten::resize_") == 0 ||
                   std::strncmp(text, "aten::new_empty", 15) == 0),
        only_looks(uses::only_looks(text)) {}
};

/* Never destroyed: threads may allocate while the process ends. */
struct Known {
  std::mutex mutex; /* nothing is called meanwhile that could wait for the GIL */
  std::unordered_map<FrameKey, uint32_t, Hash> frames;
  std::unordered_map<SiteKey, std::shared_ptr<Site>, Hash> sites;
  std::unordered_map<std::string, Operator> operators;
  std::unordered_map<uint64_t, uint32_t> forwards; /* of a thread's sequence number → frame, in this sampled step */
  uint32_t last_frame = 0;
  std::string directory; /* the working directory at the start, with a slash; "" where there is none */
  std::string own_files; /* of the companion, whose frames are left out: what their names begin with */
};
Known &known() {
  static Known *const all = new Known;
  return *all;
}

bool begins_with(const std::string &text, const std::string &start) {
  return !start.empty() && text.compare(0, start.size(), start) == 0;
}

std::string relative(const std::string &file) {
  return begins_with(file, known().directory) ? file.substr(known().directory.size()) : file;
}

/* The GIL is held, but no lock of ours: reading names may run other Python code. Returns 0 when there are too many. */
uint32_t frame_make(const FrameKey &key, void *frame) {
  const Python::PendingError pending(python);
  const std::string file = python.text_of(key.code, "co_filename");
  uint32_t id = key.caller;
  if (!begins_with(file, known().own_files)) {
    std::string function = python.text_of(key.code, "co_qualname"); /* since 3.11 */
    if (function.empty())
      function = python.text_of(key.code, "co_name");
    const int line = python.get_line(frame);
    std::lock_guard<std::mutex> lock(known().mutex);
    if (known().last_frame == frames_max)
      return 0;
    id = ++known().last_frame;
    define_frame(id, key.caller, relative(file).c_str(), function.c_str(), line > 0 ? static_cast<uint32_t>(line) : 0);
  }
  std::lock_guard<std::mutex> lock(known().mutex);
  const auto made = known().frames.emplace(key, id); /* another thread may have been first */
  if (made.second)
    python.keep(key.code);
  return made.first->second;
}

/* The thread's call stack of the last time, outermost frame first: mostly the next one begins as it did. */
struct LastStack {
  struct {
    void *code;
    int instruction;
    uint32_t id;
  } frames[depth_max];
  int depth;
};
thread_local LastStack last_stack;

/* The call stack that ends in a frame of Python's; the GIL is held. Returns its innermost frame, or 0. */
uint32_t stack_from(void *innermost) {
  struct {
    void *frame, *code;
    int instruction;
  } stack[depth_max];
  int depth = 0;
  if (innermost)
    python.keep(innermost);
  for (void *frame = innermost; frame;) {
    if (depth < depth_max) {
      void *code = python.get_code(frame);
      python.drop(code); /* its frame keeps it */
      stack[depth++] = {frame, code, python.get_instruction ? python.get_instruction(frame) : python.get_line(frame)};
      frame = python.get_back(frame);
    } else {
      python.drop(frame);
      frame = nullptr;
    }
  }
  uint32_t id = 0;
  LastStack &last = last_stack;
  int next = depth - 1; /* outermost first */
  for (int at = 0; next >= 0 && at < last.depth && last.frames[at].code == stack[next].code &&
                   last.frames[at].instruction == stack[next].instruction;
       at++, next--)
    id = last.frames[at].id; /* code that is known is kept, so that its address stays its own */
  last.depth = depth - 1 - next;
  const auto remember = [&] {
    if (id)
      last.frames[last.depth++] = {stack[next].code, stack[next].instruction, id};
  };
  if (next >= 0) { /* all that is known under one lock, nearly always the whole stack */
    std::lock_guard<std::mutex> lock(known().mutex);
    for (; next >= 0; next--) {
      auto found = known().frames.find({id, stack[next].instruction, stack[next].code});
      if (found == known().frames.end())
        break;
      id = found->second;
      remember();
    }
  }
  for (; next >= 0; next--)
    id = frame_make({id, stack[next].instruction, stack[next].code}, stack[next].frame);
  for (int i = 0; i < depth; i++)
    python.drop(stack[i].frame);
  return id;
}

/* Of this thread; 0 where it has no Python frames. Takes the GIL, as PyTorch's own recorder does. */
uint32_t stack_now() {
  if (python.finalizing() || !python.thread_state())
    return 0;
  const int held = python.ensure();
  const uint32_t id = stack_from(python.get_frame());
  python.release(held);
  return id;
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
thread_local Operators current;
thread_local bool inside; /* a recorder, or a callback */

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
thread_local Unused unused;

void *Before::operator new(size_t size) {
  if (unused.count > 0 && unused.count < Unused::most)
    return unused.list[--unused.count];
  void *memory = std::malloc(size);
  return memory ? memory : throw std::bad_alloc();
}

void Before::operator delete(void *memory) noexcept {
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
const Operator *operator_of(const char *name) {
  constexpr size_t slots = 512;
  static thread_local const Operator *latest[slots];
  const Operator *&slot = latest[Hash::mix(reinterpret_cast<uintptr_t>(name), 0) % slots];
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
void forward_begins(const at::RecordFunction &function) {
  if (!current.stack_known && !inside) {
    inside = true;
    current.stack = stack_now();
    current.stack_known = true;
    inside = false;
  }
  if (current.stack) {
    std::lock_guard<std::mutex> lock(known().mutex);
    known().forwards[forward_key(at::RecordFunction::currentThreadId(), function.seqNr())] = current.stack;
  }
}

std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction &function) {
  const Operator *name = operator_of(function.name());
  if (name->is_engine || (mode.load(std::memory_order_relaxed) == BETWEEN && !between_goes_on()))
    return nullptr;
  auto before = std::make_unique<Before>();
  before->operators = current;
  before->name = name;
  if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
    std::lock_guard<std::mutex> lock(known().mutex);
    auto found = known().forwards.find(forward_key(function.forwardThreadId(), function.seqNr()));
    current = {name, false, false, false, 0, found != known().forwards.end() ? found->second : 0};
    return before;
  }
  const bool is_outermost = !name->is_dispatched || !current.in_dispatched;
  if (uses::tell && is_outermost) {
    before->uses.begin();
    current.made = false;
  }
  if (uses::tell && !name->only_looks)
    uses::add_all(function.inputs(), is_outermost ? before->uses.first : 0);
  if (!current.name || !name->is_factory)
    current.name = name;
  if (is_outermost) {
    current.in_dispatched = name->is_dispatched; /* an autograd.Function runs Python */
    current.stack_known = false;
  }
  if (function.seqNr() >= 0)
    forward_begins(function);
  return before;
}

void tell_uses(const Before &before);

/* After a backward operator autograd sums gradients up, which is still of the same forward one. */
void operator_ends(const at::RecordFunction &function, at::ObserverContext *context) {
  if (!context)
    return;
  auto *before = static_cast<Before *>(context);
  tell_uses(*before);
  before->uses.forget();
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

std::shared_ptr<Site> site_make(const SiteKey &key, const char *operator_name) {
  Known &all = known();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.sites.find(key);
  if (found != all.sites.end())
    return found->second;
  if (all.sites.size() == sites_max)
    return nullptr;
  auto site = std::make_shared<Site>();
  site->id = static_cast<uint32_t>(all.sites.size() + 1);
  all.sites.emplace(key, site);
  define_site(site->id, key.frame, operator_name, key.stack_of);
  return site;
}

std::shared_ptr<Site> site_of(uint32_t frame, const Operator *name, int stack_of) {
  if (!frame && !name)
    return nullptr;
  return site_make({frame, name ? name->id : 0, stack_of}, name ? name->name.c_str() : "");
}

/* Of this thread, now. with_stack: the stack may be read where it is not known yet. */
std::shared_ptr<Site> site_now(bool with_stack) {
  uint32_t stack = 0;
  if (current.stack_known)
    stack = current.stack;
  else if (with_stack)
    stack = stack_now();
  if (current.in_dispatched)
    current.stack = stack, current.stack_known = true;
  const bool of_forward = !stack && current.forward;
  return site_of(of_forward ? current.forward : stack, current.name,
                 of_forward ? SL_STACK_OF_FORWARD : SL_STACK_OF_CALLER);
}

void tell_uses(const Before &before) {
  const bool made = current.made && !before.name->only_looks;
  if (!before.uses.has_any(made) || !uses::tell)
    return;
  const auto site = site_now(false); /* where it is known: nobody waits for the GIL here */
  before.uses.end(site ? site->id : 0, made);
}

/* For the plugin, at kernel launches of this thread. */
int in_operator() {
  return current.in_dispatched;
}

/* The allocator's context recorder: called without its lock. Never throws. */
std::shared_ptr<c10::GatheredContext> record() {
  const int now = mode.load(std::memory_order_relaxed);
  if (inside || now == OFF)
    return nullptr;
  inside = true;
  std::shared_ptr<c10::GatheredContext> site;
  try {
    site = site_now(now == OPERATORS || budget.take());
    current.made = true;
  } catch (...) {
    /* No memory: this allocation has no site. */
  }
  inside = false;
  return site;
}

/* ---- on and off ---- */

bool start(decltype(sl_frame) *frame_fn, decltype(sl_site) *site_fn, const char *own_files) {
  char here[4096];
  define_frame = frame_fn, define_site = site_fn;
  known().own_files = own_files;
  if (getcwd(here, sizeof here) && std::strcmp(here, "/") != 0)
    known().directory = std::string(here) + "/";
  return python.load();
}

/* Callbacks of record_function, while operators are followed. */
void follow_operators(bool wanted) {
  static at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
  if (wanted && handle == at::INVALID_CALLBACK_HANDLE)
    handle = at::addGlobalCallback(at::RecordFunctionCallback(operator_begins, operator_ends)
                                       .needsInputs(uses::tell != nullptr)
                                       .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  else if (wanted)
    at::reenableCallback(handle);
  else
    at::disableCallback(handle);
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
