/*
 * Frames: Python call stacks, by the names of Python's stable interface. Part of torch_sites.h, which includes this
 * once.
 *
 * A frame is found by its caller, code object and instruction, so that its names are read once. Code objects are kept
 * alive, so that the address of one that is known stays its own.
 */
#ifndef SHARDLEDGER_TORCH_FRAMES_H
#define SHARDLEDGER_TORCH_FRAMES_H

#include "shardledger.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>

namespace frames {

constexpr uint32_t frames_max = 1 << 20; /* a program that makes up code has no more of them */
constexpr int depth_max = 256;           /* innermost frames of a call stack */

size_t mix(uint64_t a, uint64_t b) {
  uint64_t hash = (a ^ b * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu;
  return hash ^ hash >> 32;
}

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
decltype(sl_frame) *define;
struct Key {
  uint32_t caller;
  int instruction;
  void *code;
  bool operator==(const Key &other) const {
    return caller == other.caller && instruction == other.instruction && code == other.code;
  }
};

struct Hash {
  size_t operator()(const Key &key) const {
    return mix(reinterpret_cast<uint64_t>(key.code),
               uint64_t{key.caller} << 32 | static_cast<uint32_t>(key.instruction));
  }
};

/* Never destroyed: threads may allocate while the process ends. */
struct Known {
  std::mutex mutex; /* nothing is called meanwhile that could wait for the GIL */
  std::unordered_map<Key, uint32_t, Hash> frames;
  uint32_t last = 0;
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
uint32_t make(const Key &key, void *frame) {
  const Python::PendingError pending(python);
  const std::string file = python.text_of(key.code, "co_filename");
  uint32_t id = key.caller;
  if (!begins_with(file, known().own_files)) {
    std::string function = python.text_of(key.code, "co_qualname"); /* since 3.11 */
    if (function.empty())
      function = python.text_of(key.code, "co_name");
    const int line = python.get_line(frame);
    std::lock_guard<std::mutex> lock(known().mutex);
    if (known().last == frames_max)
      return 0;
    id = ++known().last;
    define(id, key.caller, relative(file).c_str(), function.c_str(), line > 0 ? static_cast<uint32_t>(line) : 0);
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

/* The call stack that ends in a frame of Python's; the GIL is held. Returns its innermost frame, or 0. */
uint32_t stack_from(LastStack &last, void *innermost) {
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
    id = make({id, stack[next].instruction, stack[next].code}, stack[next].frame);
  for (int i = 0; i < depth; i++)
    python.drop(stack[i].frame);
  return id;
}

/* Of this thread; 0 where it has no Python frames. Takes the GIL, as PyTorch's own recorder does. */
uint32_t stack_now(LastStack &last) {
  if (python.finalizing() || !python.thread_state())
    return 0;
  const int held = python.ensure();
  const uint32_t id = stack_from(last, python.get_frame());
  python.release(held);
  return id;
}

/* False where this Python lacks a function. */
bool start(decltype(sl_frame) *frame_fn, const char *own_files) {
  char here[4096];
  define = frame_fn;
  known().own_files = own_files;
  if (getcwd(here, sizeof here) && std::strcmp(here, "/") != 0)
    known().directory = std::string(here) + "/";
  return python.load();
}

} // namespace frames

#endif
