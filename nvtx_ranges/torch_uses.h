/*
 * Uses: which storages an operator reads and writes. Part of torch_sites.h, which includes this once.
 *
 * While operators are followed, each one's tensors are looked at as it begins, and told as the outermost one ends, with
 * how long that took: so whatever an operator uses is in use as long as the operator runs, its inner ones included.
 * Views are of the storage that they look into. Operators that only make a view, or memory without a value, use
 * nothing; where they copy after all, an inner operator does that, and uses.
 */
#ifndef SHARDLEDGER_TORCH_USES_H
#define SHARDLEDGER_TORCH_USES_H

#include "shardledger.h"

#include <ATen/core/TensorBase.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <initializer_list>

namespace uses {

constexpr size_t bytes_min = 512;     /* smaller storages, of single numbers, are left out */
constexpr size_t compared_max = 32;   /* the latest ones of an operator; told twice is no harm */
constexpr size_t held_max = 1u << 16; /* of an operator's storages, the first ones */

decltype(sl_use) *tell; /* NULL: uses are not wanted */
decltype(sl_use_watch) *watch;
c10::DeviceType device = c10::DeviceType::CUDA;

/* What the open operators of a thread use: an inner one's behind that of the operator around it. */
struct Held {
  uint64_t *list = nullptr;
  size_t count = 0, capacity = 0;
  ~Held() {
    std::free(list);
    list = nullptr;
    count = capacity = 0;
  }
  void add(uint64_t address) {
    if (count == capacity) {
      const size_t wanted = capacity ? 2 * capacity : 256;
      auto *grown = wanted > held_max ? nullptr : static_cast<uint64_t *>(std::realloc(list, wanted * sizeof *list));
      if (!grown)
        return;
      list = grown, capacity = wanted;
    }
    list[count++] = address;
  }
};

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

/* PyTorch's functions may copy or refuse what only looks; this one does neither, where a version has it. */
template <typename Storage>
auto pointer_of(Storage *storage, int) -> decltype(&storage->_mutable_data_ptr_no_checks()) {
  return &storage->_mutable_data_ptr_no_checks();
}
template <typename Storage> const at::DataPtr *pointer_of(Storage *, long) {
  return nullptr;
}

/* Wrappers, such as a DTensor, have no memory of their own: the operators that they call use it. */
void add(Held &held, const at::TensorBase &tensor, size_t since) {
  if (!tensor.defined() || !tensor.unsafeGetTensorImpl()->has_storage())
    return;
  c10::StorageImpl *storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const at::DataPtr *pointer = storage ? pointer_of(storage, 0) : nullptr;
  if (!pointer || !pointer->get() || pointer->device().type() != device)
    return;
  if (storage->sym_nbytes().maybe_as_int().value_or(0) < static_cast<int64_t>(bytes_min))
    return;
  const auto address = reinterpret_cast<uint64_t>(pointer->get());
  const size_t first = held.count - since > compared_max ? held.count - compared_max : since;
  for (size_t i = held.count; i > first; i--)
    if (held.list[i - 1] == address)
      return;
  held.add(address);
}

void add_all(Held &held, c10::ArrayRef<const c10::IValue> inputs, size_t since) {
  for (const c10::IValue &input : inputs) {
    if (input.isTensor()) {
      add(held, input.toTensor(), since);
    } else if (input.isList()) {
      for (const c10::IValue &element : input.toListRef()) {
        if (element.isTensor())
          add(held, element.toTensor(), since);
        else if (!element.isNone())
          break; /* a list of numbers */
      }
    }
  }
}

/* An outermost operator, from its begin to its end. */
struct Open {
  bool is_open = false;
  size_t first = 0;
  uint64_t began_ns = 0;

  void begin(const Held &held) {
    is_open = true, first = held.count, began_ns = now_ns();
  }
  /* made: it has asked for memory. */
  bool has_any(const Held &held, bool made) const {
    return is_open && (made || held.count > first);
  }
  void end(const Held &held, uint32_t site, bool made) const {
    const uint64_t lasted = now_ns() - began_ns;
    const uint32_t lasted_ns = lasted < UINT32_MAX ? static_cast<uint32_t>(lasted) : UINT32_MAX;
    for (size_t i = first; i < held.count; i++)
      tell(held.list[i], site, lasted_ns);
    if (made)
      tell(0, site, lasted_ns);
  }
  void forget(Held &held) {
    if (is_open)
      held.count = first;
    is_open = false;
  }
};

/* One of these patterns fits the name, behind "aten::". A star: what begins so. */
bool is_one_of(const char *name, std::initializer_list<const char *> patterns) {
  if (std::strncmp(name, "aten::", 6) != 0)
    return false;
  for (const char *pattern : patterns) {
    const size_t length = std::strlen(pattern);
    const bool begins = pattern[length - 1] == '*';
    if (begins ? std::strncmp(name + 6, pattern, length - 1) == 0 : std::strcmp(name + 6, pattern) == 0)
      return true;
  }
  return false;
}

/* Makes another view of its tensor and nothing else: it neither allocates nor copies. */
bool only_views(const char *name) {
  return is_one_of(name, {"view",
                          "view_as",
                          "view_as_real",
                          "view_as_complex",
                          "_unsafe_view",
                          "_reshape_alias",
                          "t",
                          "transpose",
                          "transpose_",
                          "permute",
                          "expand",
                          "expand_as",
                          "slice",
                          "select",
                          "narrow",
                          "split",
                          "split_with_sizes",
                          "chunk",
                          "unbind",
                          "squeeze*",
                          "unsqueeze*",
                          "detach",
                          "detach_",
                          "alias",
                          "as_strided",
                          "as_strided_",
                          "unflatten",
                          "lift_fresh",
                          "diagonal",
                          "unfold",
                          "movedim",
                          "swapaxes",
                          "swapdims",
                          "numpy_T",
                          "mT",
                          "matrix_H",
                          "real",
                          "imag",
                          "data",
                          "values",
                          "indices"});
}

/* Reads and writes nothing itself. */
bool only_looks(const char *name) {
  return only_views(name) || std::strncmp(name, "detach", 6) == 0 /* PyTorch's range inside of aten::detach */ ||
         is_one_of(name, {"empty*",
                          "new_*",
                          "zeros",
                          "zeros_like",
                          "ones",
                          "ones_like",
                          "full_like",
                          "rand_like",
                          "randn_like",
                          "randint_like",
                          "view*",
                          "reshape*",
                          "expand*",
                          "detach*",
                          "tensor_split",
                          "flatten",
                          "contiguous",
                          "to",
                          "type_as",
                          "set_",
                          "set_data",
                          "resize_*",
                          "record_stream",
                          "requires_grad_",
                          "retain_grad",
                          "result_type",
                          "broadcast_tensors",
                          "item",
                          "_version",
                          "is_same_size",
                          "is_complex",
                          "is_floating_point",
                          "is_pinned",
                          "cudnn_is_acceptable",
                          "sym_*",
                          "size",
                          "stride",
                          "numel"});
}

} // namespace uses

#endif
