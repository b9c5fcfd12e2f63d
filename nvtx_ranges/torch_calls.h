/*
 * Calls: functions of this bridge that Python calls without ctypes. Part of torch_bridge.cpp, which includes this once.
 *
 * They are Python's own builtins, made from tables of its stable interface, so that one file serves every version:
 * ranges, and what is around the calls of modules. A call through ctypes takes a microsecond or more where training has
 * emptied the processor's caches, and a frame of Python's half of one.
 *
 * Modules: forward.py says what a range begins and ends with. What is the same at every call of a module, it leaves to
 * what is here, and is asked for the rest:
 *
 *   enter(module) ──┬── none of those that have ranges, inside of another one ─────► None
 *                   ├── its range is open, or the thread compiles or traces ───────► None
 *                   ├── settled (forward.py has seen it), inside of another one ───► range, its Known
 *                   └── else ──────────────────────────────────────────────────────► forward._enter
 *
 * The open modules of a thread are in one list, forward.py's own. Everything here runs with the GIL held, which guards
 * the table; a Python without one does not get these functions.
 */
#ifndef SHARDLEDGER_TORCH_CALLS_H
#define SHARDLEDGER_TORCH_CALLS_H

#include "kinds.h"
#include "ranges.h"
#include "torch_frames.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <sys/types.h>

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace calls {

/* ---- Python's stable interface; an Object is a PyObject ---- */

using Object = void;

struct Method { /* PyMethodDef */
  const char *name;
  void *function;
  int flags;
  const char *doc;
};
constexpr int one_argument = 0x0008; /* METH_O */
constexpr int arguments = 0x0080;    /* METH_FASTCALL */

struct Python {
  Object *(*make_function)(const Method *, Object *, Object *) = nullptr;
  void (*keep)(Object *) = nullptr;
  void (*drop)(Object *) = nullptr;
  unsigned long long (*number_of)(Object *) = nullptr;
  Object *(*make_number)(unsigned long long) = nullptr;
  const char *(*bytes_of)(Object *) = nullptr;
  Object *(*error)() = nullptr; /* borrowed */
  void (*set_error)(Object *, const char *) = nullptr;
  Object *(*call)(Object *, ...) = nullptr;
  ssize_t (*list_size)(Object *) = nullptr;
  Object *(*list_item)(Object *, ssize_t) = nullptr; /* borrowed */
  int (*list_append)(Object *, Object *) = nullptr;
  int (*list_set_slice)(Object *, ssize_t, ssize_t, Object *) = nullptr;
  Object *(*dictionary_item)(Object *, Object *) = nullptr; /* borrowed */
  void *(*thread_state)() = nullptr;
  uint64_t (*thread_number)(void *) = nullptr; /* no other thread state ever has the same */
  Object *none = nullptr, *yes = nullptr, *no = nullptr, **type_error = nullptr;

  template <typename Found> static bool find(Found &found, const char *name) {
    return frames::Python::find(found, name);
  }
  bool load() {
    return find(make_function, "PyCFunction_NewEx") && find(keep, "Py_IncRef") && find(drop, "Py_DecRef") &&
           find(number_of, "PyLong_AsUnsignedLongLongMask") && find(make_number, "PyLong_FromUnsignedLongLong") &&
           find(bytes_of, "PyBytes_AsString") && find(error, "PyErr_Occurred") && find(set_error, "PyErr_SetString") &&
           find(call, "PyObject_CallFunctionObjArgs") && find(list_size, "PyList_Size") &&
           find(list_item, "PyList_GetItem") && find(list_append, "PyList_Append") &&
           find(list_set_slice, "PyList_SetSlice") && find(dictionary_item, "PyDict_GetItem") &&
           find(thread_state, "PyThreadState_Get") && find(thread_number, "PyThreadState_GetID") &&
           find(none, "_Py_NoneStruct") && find(yes, "_Py_TrueStruct") && find(no, "_Py_FalseStruct") &&
           find(type_error, "PyExc_TypeError");
  }

  Object *kept(Object *object) const {
    keep(object);
    return object;
  }
};
Python python;

/* ---- a C function as one of Python's ---- */

template <typename Value> Value from_python(Object *object) {
  if constexpr (std::is_pointer_v<Value>)
    return python.bytes_of(object);
  else
    return static_cast<Value>(python.number_of(object));
}

/* Of a function that is known later. Its parameters are numbers and texts, as bytes. */
template <auto &Function> struct Entry {
  template <typename Result, typename... Parameters, size_t... At>
  static Object *apply(Result (*function)(Parameters...), Object *const *given, std::index_sequence<At...>) {
    if constexpr (std::is_void_v<Result>) {
      function(from_python<Parameters>(given[At])...);
      return python.kept(python.none);
    } else {
      return python.make_number(function(from_python<Parameters>(given[At])...));
    }
  }
  template <typename Result, typename... Parameters>
  static Object *checked(Result (*function)(Parameters...), Object *const *given, ssize_t count) {
    if (count != static_cast<ssize_t>(sizeof...(Parameters))) {
      python.set_error(*python.type_error, "wrong number of arguments");
      return nullptr;
    }
    Object *result = apply(function, given, std::index_sequence_for<Parameters...>());
    if (result && python.error()) { /* one of another type was taken for 0 */
      python.drop(result);
      return nullptr;
    }
    return result;
  }
  static Object *call(Object *, Object *const *given, ssize_t count) {
    return checked(Function, given, count);
  }
};

slr_push_fn *push;
slr_pop_fn *pop;
slr_start_fn *start;
slr_end_fn *end;

/* ---- modules that have ranges ---- */

struct Unit {
  Object *known = nullptr; /* of forward.py; NULL until it has seen the module */
  Object *name = nullptr;  /* bytes */
  uint32_t id = 0;
  bool is_quiet = false; /* nothing is put on what it returns */
};

std::unordered_map<Object *, Unit> &units() { /* never destroyed; few a bucket: most are asked for in vain */
  static auto *const all = [] {
    auto *made = new std::unordered_map<Object *, Unit>;
    made->max_load_factor(0.25F);
    return made;
  }();
  return *all;
}

/* What forward.py hands over in prepare(). */
struct Forward {
  Object *enter = nullptr, *leave = nullptr;
  Object *guard = nullptr, *guard_on = nullptr;            /* a dictionary, and a key in it */
  Object *compiler = nullptr, *compiler_flag = nullptr;    /* likewise */
  Object *get_callback = nullptr, *set_callback = nullptr; /* of the thread's compiler; the first since torch 2.6 */
};
Forward forward;

/* The list of the thread's open modules, while Python knows the thread by this number. */
struct Open {
  Object *list;
  uint64_t thread_number;
};
thread_local Open open_here;

Object *open_list() {
  return open_here.list && open_here.thread_number == python.thread_number(python.thread_state()) ? open_here.list
                                                                                                  : nullptr;
}

Unit *unit_of(Object *module) {
  const auto found = units().find(module);
  return found == units().end() ? nullptr : &found->second;
}

void unsettle(Unit &unit) {
  Object *known = std::exchange(unit.known, nullptr), *name = std::exchange(unit.name, nullptr);
  if (known)
    python.drop(known), python.drop(name);
}

bool recomputes() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

/* Inside of what is compiled there are no ranges, also where its graph is broken, nor in what is traced. 1, 0, or -1
 * with an error. */
int is_read() {
  if (torch::jit::tracer::isTracing() || python.dictionary_item(forward.compiler, forward.compiler_flag) != python.no)
    return 1;
  const bool asks = forward.get_callback != python.none;
  Object *callback =
      asks ? python.call(forward.get_callback, nullptr) : python.call(forward.set_callback, python.none, nullptr);
  if (!callback)
    return -1;
  Object *back = asks ? nullptr : python.call(forward.set_callback, callback, nullptr);
  if (back)
    python.drop(back);
  python.drop(callback);
  return !asks && !back ? -1 : callback != python.none;
}

Object *enter(Object *, Object *module) {
  Object *const list = open_list();
  const ssize_t depth = list ? python.list_size(list) : 0;
  const Unit *unit = unit_of(module);
  if (!unit && depth)
    return python.kept(python.none);
  if (python.dictionary_item(forward.guard, forward.guard_on) != python.yes)
    return python.kept(python.none);
  const bool recomputing = recomputes();
  if (!unit || !unit->known || !list || !(depth || recomputing))
    return python.call(forward.enter, module, nullptr);
  const int read = is_read();
  if (read)
    return read < 0 ? nullptr : python.kept(python.none);
  unit = unit_of(module); /* a compiler was asked, which may run Python */
  if (!unit || !unit->known)
    return python.kept(python.none);
  for (ssize_t i = 0; i < python.list_size(list); i++)
    if (python.list_item(list, i) == unit->known)
      return python.kept(python.none);
  if (python.list_append(list, unit->known) != 0)
    return nullptr;
  push(recomputing ? SL_KIND_recompute : SL_KIND_forward, python.bytes_of(unit->name), unit->id);
  return python.kept(unit->known);
}

/* (module, what enter returned, args, kwargs, output) */
Object *leave(Object *, Object *const *given, ssize_t count) {
  if (count != 5) {
    python.set_error(*python.type_error, "leave takes 5 arguments");
    return nullptr;
  }
  Object *const known = given[1], *const output = given[4], *const list = open_list();
  const ssize_t depth = list ? python.list_size(list) : 0;
  const Unit *unit = unit_of(given[0]);
  const bool is_innermost = unit && unit->known == known && depth && python.list_item(list, depth - 1) == known;
  if (is_innermost &&
      (recomputes() || (depth > 1 && (unit->is_quiet || output == python.none || !c10::GradMode::is_enabled())))) {
    if (python.list_set_slice(list, depth - 1, depth, nullptr) != 0)
      return nullptr;
    pop();
    return python.kept(python.none);
  }
  return python.call(forward.leave, given[0], known, given[2], given[3], output, nullptr);
}

/* The calling thread's list of open modules. */
Object *stack_is(Object *, Object *list) {
  if (open_here.list != list) {
    if (open_here.list)
      python.drop(open_here.list);
    open_here.list = python.kept(list);
  }
  open_here.thread_number = python.thread_number(python.thread_state());
  return python.kept(python.none);
}

/* By its id, which is its address. */
Object *module_has_ranges(Object *, Object *id) {
  units().emplace(reinterpret_cast<Object *>(python.number_of(id)), Unit());
  return python.kept(python.none);
}

Object *module_has_no_ranges(Object *, Object *id) {
  const auto found = units().find(reinterpret_cast<Object *>(python.number_of(id)));
  if (found != units().end()) {
    Unit gone = found->second;
    units().erase(found);
    unsettle(gone);
  }
  return python.kept(python.none);
}

/* (module, its Known, name as bytes, id, whether nothing is put on what it returns) */
Object *settle(Object *, Object *const *given, ssize_t count) {
  if (count != 5) {
    python.set_error(*python.type_error, "settle takes 5 arguments");
    return nullptr;
  }
  Unit *unit = unit_of(given[0]);
  if (unit && unit->known != given[1]) {
    unsettle(*unit);
    unit = unit_of(given[0]);
  }
  if (unit && !unit->known) {
    unit->id = static_cast<uint32_t>(python.number_of(given[3]));
    unit->is_quiet = given[4] == python.yes;
    unit->name = python.kept(given[2]);
    unit->known = python.kept(given[1]);
  }
  return python.kept(python.none);
}

/* What was settled of a module is no more so. */
Object *module_changed(Object *, Object *id) {
  if (Unit *unit = unit_of(reinterpret_cast<Object *>(python.number_of(id))))
    unsettle(*unit);
  return python.kept(python.none);
}

/* (enter, leave, guard's dictionary, key, compiler's dictionary, key, get_callback or None, set_callback) */
Object *prepare(Object *, Object *const *given, ssize_t count) {
  if (count != 8) {
    python.set_error(*python.type_error, "prepare takes 8 arguments");
    return nullptr;
  }
  for (ssize_t i = 0; i < count; i++)
    python.keep(given[i]);
  forward = {given[0], given[1], given[2], given[3], given[4], given[5], given[6], given[7]};
  return python.kept(python.none);
}

template <typename Function> void *address(Function *function) {
  return reinterpret_cast<void *>(function);
}

const Method methods[] = {
    {"push", address(Entry<push>::call), arguments, nullptr},
    {"pop", address(Entry<pop>::call), arguments, nullptr},
    {"start", address(Entry<start>::call), arguments, nullptr},
    {"end", address(Entry<end>::call), arguments, nullptr},
    {"prepare", address(prepare), arguments, nullptr},
    {"enter", address(enter), one_argument, nullptr},
    {"leave", address(leave), arguments, nullptr},
    {"stack_is", address(stack_is), one_argument, nullptr},
    {"module_has_ranges", address(module_has_ranges), one_argument, nullptr},
    {"module_has_no_ranges", address(module_has_no_ranges), one_argument, nullptr},
    {"module_changed", address(module_changed), one_argument, nullptr},
    {"settle", address(settle), arguments, nullptr},
};

/* A new reference to one of them; NULL where there is none of this name. */
Object *function(const char *name) {
  for (const Method &method : methods)
    if (std::strcmp(method.name, name) == 0)
      return python.make_function(&method, nullptr, nullptr);
  return nullptr;
}

} // namespace calls

#endif
