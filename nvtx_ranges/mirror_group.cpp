/*
 * The process group of rehearsals: one rank of many, whose other ranks are taken for copies of this one.
 *
 * `shardledger rehearse` runs a job as rank R of N with this backend in the places of NCCL's and Gloo's. Nothing is
 * sent; what a collective returns is what it would return if every rank had said what this one says:
 *
 *   all_gather                    N copies                          gather, at its root        N copies
 *   all_reduce, reduce_scatter    SUM: N × own (own part)           broadcast                  own
 *     PREMUL_SUM                  N × factor × own                  scatter, at its root       own part; else zeros
 *     AVG, MIN, MAX, …, PRODUCT   own                               all_to_all                 each gives what it gets
 *     BXOR                        own, of an even number 0          recv                       zeros; numbers: what was
 * sent
 *
 * SUM counts all ranks, so that ones add up to N and what a program divides by N is what it was. PRODUCT does not: own
 * to the N-th would leave what numbers can hold. In an all_to_all what each rank gives this one is what this one gives
 * it: then an expert gets as many tokens as the average one does, and sizes that were exchanged before fit.
 *
 * Memory is the point of it, so PyTorch's allocator is asked for what ProcessGroupNCCL asks it for, as torch 2.8 and
 * later do it: the lists of all_gather and reduce_scatter go through one flat tensor each; a barrier has a tensor of
 * one number; an asynchronous call keeps its tensors until somebody waits for it, or until a later call finds it
 * forgotten, also where its work is gone (DDP has only the future of its buckets' reductions); a synchronous one keeps
 * nothing and, under NCCL, returns no work. Everything runs on the caller's current stream.
 *
 * It is compiled against the installed torch, as the bridge is, and needs neither Python's headers nor CUDA's: an
 * operator puts a backend into a ProcessGroup that Python has made (mirror.py).
 */
#include "mirror_work.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using c10d::OpType;
using c10d::ReduceOp;
using mirror::MirrorWork;
using mirror::Shelf;
using mirror::Tensors;
using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using Clock = std::chrono::steady_clock;

constexpr auto FORGOTTEN = std::chrono::milliseconds(100); /* how often NCCL's watchdog looks */
constexpr int64_t REMEMBERED_BYTES = 65536;                /* of a message of whole numbers */

/* Tells Python, which ends the rehearsal with one sentence. */
void (*on_refusal)(const char *);
/* Tells Python what a group of NCCL is used for, when that is new. */
void (*on_use)(int number, int ranks, int uses);
int nccl_groups;

[[noreturn]] void refuse(const std::string &what) {
  if (on_refusal)
    on_refusal(what.c_str());
  TORCH_CHECK(false, "shardledger rehearse: ", what);
}

/* The same for all versions: before 2.8 every call was asynchronous. */
template <typename Options> auto is_async(const Options &options, int) -> decltype(bool(options.asyncOp)) {
  return options.asyncOp;
}
template <typename Options> bool is_async(const Options &, long) {
  return true;
}

/* The group's own arithmetic is no operator of the program's: neither autograd nor a dispatch mode sees it. */
class Unseen {
  at::AutoDispatchBelowADInplaceOrView below_;
  c10::impl::ExcludeDispatchKeyGuard python_{
      c10::DispatchKeySet({c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot})};
};

at::Tensor flat(const at::Tensor &tensor) {
  return tensor.is_contiguous() ? tensor.view(-1) : tensor.reshape(-1);
}

void assign(const at::Tensor &to, const at::Tensor &from) {
  if (to.numel() > 0 && !(to.data_ptr() == from.data_ptr() && to.numel() == from.numel() && to.is_contiguous()))
    to.copy_(from.view_as(to), true);
}

/* As much of it as there is, the rest zeros. */
void copy_what_fits(const at::Tensor &to, const at::Tensor &from) {
  if (to.numel() == from.numel())
    return assign(to, from);
  const int64_t both = std::min(to.numel(), from.numel());
  at::Tensor target = flat(to);
  assign(target.narrow(0, 0, both), flat(from).narrow(0, 0, both));
  target.narrow(0, both, to.numel() - both).zero_();
}

bool is_common_float(const at::Tensor &tensor) {
  const at::ScalarType type = tensor.scalar_type();
  return type == at::kFloat || type == at::kDouble || type == at::kHalf || type == at::kBFloat16;
}

bool can_count(const at::Tensor &tensor) {
  return tensor.scalar_type() != at::kBool && !c10::isFloat8Type(tensor.scalar_type());
}

void times(const at::Tensor &tensor, const c10::Scalar &factor) {
  if (can_count(tensor) && tensor.numel() > 0)
    tensor.mul_(factor);
}

/* The tensor has what this rank says, and becomes what `ranks` copies of it make together. */
void reduce_copies(const at::Tensor &tensor, const ReduceOp &op, int ranks) {
  if (op.op_ == ReduceOp::PREMUL_SUM && op.supplement_) {
    const auto *more = static_cast<const c10d::NCCLPreMulSumSupplement *>(op.supplement_.get());
    if (more->tensor_factor.defined())
      tensor.mul_(more->tensor_factor);
    else
      times(tensor, more->double_factor);
  }
  if (op.op_ == ReduceOp::SUM || op.op_ == ReduceOp::PREMUL_SUM)
    times(tensor, ranks);
  else if (op.op_ == ReduceOp::BXOR && ranks % 2 == 0)
    tensor.zero_();
}

/* Each copy is made of all that are there already, so that their number costs few launches. */
void fill_with_copies(const at::Tensor &all, const at::Tensor &own, int64_t ranks) {
  const int64_t size = own.numel();
  if (size == 0)
    return;
  at::Tensor out = flat(all);
  assign(out.narrow(0, 0, size), flat(own)); /* own may be any of the parts of all */
  for (int64_t have = 1; have < ranks;) {
    const int64_t more = std::min(have, ranks - have);
    out.narrow(0, have * size, more * size).copy_(out.narrow(0, 0, more * size), true);
    have += more;
  }
}

bool is_one_size(const Tensors &tensors) {
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](const at::Tensor &t) { return t.sizes() == tensors[0].sizes(); });
}

at::Tensor flat_like(const Tensors &tensors) {
  std::vector<int64_t> sizes{static_cast<int64_t>(tensors.size())};
  sizes.insert(sizes.end(), tensors[0].sizes().begin(), tensors[0].sizes().end());
  return at::empty(sizes, tensors[0].options());
}

/* What a communicator of NCCL has buffers for: a ring, sends to a rank, receives from one. */
enum Use { USE_RING = 1, USE_SEND = 2, USE_RECEIVE = 4 };

Use use_of(OpType type, bool is_root) {
  switch (type) {
  case OpType::SEND: return USE_SEND;
  case OpType::RECV: return USE_RECEIVE;
  case OpType::ALLTOALL:
  case OpType::ALLTOALL_BASE: return static_cast<Use>(USE_SEND | USE_RECEIVE);
  case OpType::GATHER: return is_root ? USE_RECEIVE : USE_SEND;
  case OpType::SCATTER: return is_root ? USE_SEND : USE_RECEIVE;
  default: return USE_RING;
  }
}

class MirrorBackend : public c10d::Backend {
public:
  MirrorBackend(int rank, int size, std::string name)
      : Backend(rank, size), name_(std::move(name)), is_nccl_(name_ == "nccl"), number_(is_nccl_ ? ++nccl_groups : 0) {}

  const std::string getBackendName() const {
    return name_;
  }
  bool supportsCoalescing() const {
    return is_nccl_;
  }
  void setTimeout(std::chrono::milliseconds) {}
  void setSequenceNumberForGroup() {}
  uint64_t getSequenceNumberForGroup() {
    return sequence_;
  }
  void monitoredBarrier(const c10d::BarrierOptions &, bool) {}
  void waitForPendingWorks() {}
  void enableCollectivesTiming() {}

  void startCoalescing() {
    is_coalescing_ = true;
    coalesced_.clear();
    coalesced_async_ = false;
    coalesced_shelf_ = std::make_shared<Shelf>();
  }
  WorkPointer endCoalescing() {
    is_coalescing_ = false;
    release_forgotten();
    const bool wanted = coalesced_async_ && !coalesced_.empty();
    WorkPointer work = wanted ? make_work(OpType::COALESCED, coalesced_, coalesced_shelf_) : WorkPointer();
    coalesced_.clear();
    coalesced_shelf_.reset();
    return work;
  }

  WorkPointer broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) {
    return call(OpType::BROADCAST, tensors, tensors, is_async(options, 0), [&](Shelf *) {
      /* What only another rank has written is anything here. */
      for (const at::Tensor &tensor : tensors)
        if (options.rootRank != rank_ && is_common_float(tensor))
          tensor.nan_to_num_(0, INFINITY, -INFINITY);
    });
  }

  WorkPointer allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) {
    return call(OpType::ALLREDUCE, tensors, tensors, is_async(options, 0), [&](Shelf *) {
      for (const at::Tensor &tensor : tensors)
        reduce_copies(tensor.is_sparse() ? tensor._values() : tensor, options.reduceOp, size_);
    });
  }
  WorkPointer allreduce_sparse(Tensors &tensors, const c10d::AllreduceOptions &options) {
    return allreduce(tensors, options);
  }
  WorkPointer allreduce_coalesced(Tensors &tensors, const c10d::AllreduceCoalescedOptions &options) {
    return allreduce(tensors, options);
  }

  WorkPointer reduce(Tensors &tensors, const c10d::ReduceOptions &options) {
    return call(OpType::REDUCE, tensors, tensors, is_async(options, 0), [&](Shelf *) {
      if (options.rootRank == rank_)
        reduce_copies(tensors[0], options.reduceOp, size_);
    });
  }

  WorkPointer allgather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::AllgatherOptions &options) {
    Tensors &own_outputs = outputs.at(0);
    TORCH_CHECK(own_outputs.size() == static_cast<size_t>(size_), "all_gather: ", own_outputs.size(),
                " output tensors for ", size_, " ranks");
    /* Of different sizes each would come by a broadcast of its own, into its place. */
    const bool in_one = is_nccl_ && is_one_size(own_outputs);
    Tensors passed = in_one ? Tensors{flat_like(own_outputs)} : own_outputs;
    return call(OpType::ALLGATHER, inputs, passed, is_async(options, 0), [&](Shelf *shelf) {
      if (in_one)
        fill_with_copies(passed[0], inputs[0], size_);
      if (in_one && shelf)
        shelf->add(own_outputs);
      for (size_t i = 0; i < own_outputs.size(); i++)
        copy_what_fits(own_outputs[i], in_one ? passed[0][static_cast<int64_t>(i)] : inputs[0]);
    });
  }
  WorkPointer allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                  const c10d::AllgatherOptions &options) {
    TORCH_CHECK(!is_nccl_, "Backend nccl does not support allgather_coalesced");
    Tensors passed;
    for (Tensors &list : outputs)
      passed.insert(passed.end(), list.begin(), list.end());
    return call(OpType::ALLGATHER_COALESCED, inputs, passed, is_async(options, 0), [&](Shelf *) {
      for (size_t rank = 0; rank < outputs.size(); rank++)
        for (size_t i = 0; i < inputs.size(); i++)
          copy_what_fits(outputs[rank].at(i), inputs[i]);
    });
  }
  WorkPointer _allgather_base(at::Tensor &output, at::Tensor &input, const c10d::AllgatherOptions &options) {
    Tensors inputs{input}, outputs{output};
    return gather_into(OpType::_ALLGATHER_BASE, outputs, inputs, is_async(options, 0));
  }
  WorkPointer allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                              const c10d::AllgatherOptions &options) {
    return gather_into(OpType::COALESCED, outputs, inputs, is_async(options, 0));
  }

  WorkPointer gather(std::vector<Tensors> &outputs, Tensors &inputs, const c10d::GatherOptions &options) {
    Tensors passed = options.rootRank == rank_ ? outputs.at(0) : Tensors{};
    is_root_ = options.rootRank == rank_;
    return call(OpType::GATHER, inputs, passed, is_async(options, 0), [&](Shelf *) {
      for (const at::Tensor &output : passed)
        copy_what_fits(output, inputs[0]);
    });
  }
  WorkPointer scatter(Tensors &outputs, std::vector<Tensors> &inputs, const c10d::ScatterOptions &options) {
    Tensors passed = options.rootRank == rank_ ? inputs.at(0) : Tensors{};
    is_root_ = options.rootRank == rank_;
    return call(OpType::SCATTER, passed, outputs, is_async(options, 0), [&](Shelf *) {
      if (options.rootRank == rank_)
        copy_what_fits(outputs[0], passed.at(static_cast<size_t>(rank_)));
      else
        outputs[0].zero_();
    });
  }

  WorkPointer reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                             const c10d::ReduceScatterOptions &options) {
    Tensors &own_inputs = inputs.at(0);
    TORCH_CHECK(own_inputs.size() == static_cast<size_t>(size_), "reduce_scatter: ", own_inputs.size(),
                " input tensors for ", size_, " ranks");
    const bool in_one = is_nccl_ && is_one_size(own_inputs);
    Tensors passed = in_one ? Tensors{flat_like(own_inputs)} : own_inputs;
    return call(OpType::REDUCE_SCATTER, passed, outputs, is_async(options, 0), [&](Shelf *shelf) {
      if (in_one && shelf)
        shelf->add(own_inputs);
      for (size_t i = 0; in_one && i < own_inputs.size(); i++)
        passed[0][static_cast<int64_t>(i)].copy_(own_inputs[i], true);
      copy_what_fits(outputs[0], own_inputs[static_cast<size_t>(rank_)]);
      reduce_copies(outputs[0], options.reduceOp, size_);
    });
  }
  WorkPointer _reduce_scatter_base(at::Tensor &output, at::Tensor &input, const c10d::ReduceScatterOptions &options) {
    Tensors inputs{input}, outputs{output};
    return scatter_from(OpType::_REDUCE_SCATTER_BASE, outputs, inputs, options);
  }
  WorkPointer reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                              const c10d::ReduceScatterOptions &options) {
    return scatter_from(OpType::COALESCED, outputs, inputs, options);
  }

  WorkPointer alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_sizes,
                            std::vector<int64_t> &input_sizes, const c10d::AllToAllOptions &options) {
    Tensors inputs{input}, outputs{output};
    return call(OpType::ALLTOALL_BASE, inputs, outputs, is_async(options, 0), [&](Shelf *) {
      if (output_sizes == input_sizes)
        return copy_what_fits(output, input);
      int64_t from = 0, to = 0;
      for (int i = 0; i < size_; i++) {
        const int64_t given = input_sizes.empty() ? input.size(0) / size_ : input_sizes[i];
        const int64_t taken = output_sizes.empty() ? output.size(0) / size_ : output_sizes[i];
        copy_what_fits(output.narrow(0, to, taken), input.narrow(0, from, given));
        from += given;
        to += taken;
      }
    });
  }
  WorkPointer alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) {
    return call(OpType::ALLTOALL, inputs, outputs, is_async(options, 0), [&](Shelf *) {
      for (size_t i = 0; i < outputs.size(); i++)
        copy_what_fits(outputs[i], inputs.at(i));
    });
  }

  /* What was said in whole numbers decides what a program does: of such a message the last one of its kind is kept. */
  WorkPointer send(Tensors &tensors, int, int) {
    return call(OpType::SEND, tensors, tensors, true, [&](Shelf *) {
      for (const at::Tensor &tensor : tensors) {
        if (tensor.is_floating_point() || tensor.is_complex() ||
            static_cast<int64_t>(tensor.nbytes()) > REMEMBERED_BYTES)
          continue;
        sent_.erase(
            std::remove_if(sent_.begin(), sent_.end(), [&](const at::Tensor &old) { return is_alike(old, tensor); }),
            sent_.end());
        sent_.push_back(tensor.to(at::kCPU, /*non_blocking=*/false, /*copy=*/true));
      }
    });
  }
  WorkPointer recv(Tensors &tensors, int from, int) {
    return call(OpType::RECV, tensors, tensors, true, [&](Shelf *) {
      for (const at::Tensor &tensor : tensors)
        receive(tensor, from);
    });
  }
  WorkPointer recvAnysource(Tensors &tensors, int tag) {
    return recv(tensors, 0, tag);
  }

  WorkPointer barrier(const c10d::BarrierOptions &options) {
    if (!is_nccl_) {
      Tensors none;
      return call(OpType::BARRIER, none, none, true, [](Shelf *) {});
    }
    const c10::Device device = barrier_device(options);
    Tensors one{at::zeros({1}, at::TensorOptions().device(device).dtype(at::kFloat))};
    WorkPointer work = call(OpType::BARRIER, one, one, is_async(options, 0), [](Shelf *) {});
    if (!work && !device.is_cpu()) {
      const c10::impl::VirtualGuardImpl guard(device.type());
      guard.synchronizeStream(guard.getStream(device));
    }
    return work;
  }

private:
  WorkPointer gather_into(OpType type, Tensors &outputs, Tensors &inputs, bool async) {
    for (size_t i = 0; i < outputs.size(); i++)
      TORCH_CHECK(inputs.at(i).numel() * size_ == outputs[i].numel(),
                  "output tensor size must be equal to world_size times input tensor size");
    return call(type, inputs, outputs, async, [&](Shelf *) {
      for (size_t i = 0; i < outputs.size(); i++)
        fill_with_copies(outputs[i], inputs[i], size_);
    });
  }

  WorkPointer scatter_from(OpType type, Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &options) {
    for (size_t i = 0; i < outputs.size(); i++)
      TORCH_CHECK(inputs.at(i).numel() == outputs[i].numel() * size_,
                  "input tensor must be the same size as output size times world size");
    return call(type, inputs, outputs, is_async(options, 0), [&](Shelf *) {
      for (size_t i = 0; i < outputs.size(); i++) {
        const int64_t size = outputs[i].numel();
        assign(outputs[i], flat(inputs[i]).narrow(0, rank_ * size, size));
        reduce_copies(outputs[i], options.reduceOp, size_);
      }
    });
  }

  static bool is_alike(const at::Tensor &a, const at::Tensor &b) {
    return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes();
  }

  void receive(const at::Tensor &tensor, int from) {
    if (tensor.is_floating_point() || tensor.is_complex()) {
      tensor.zero_();
      return;
    }
    for (const at::Tensor &said : sent_)
      if (is_alike(said, tensor)) {
        tensor.copy_(said);
        return;
      }
    refuse(c10::str("torch.distributed.recv wants ", tensor.numel(), " whole numbers from rank ", from,
                    ", which only that rank knows"));
  }

  c10::Device barrier_device(const c10d::BarrierOptions &options) const {
    if (options.device)
      return *options.device;
    if (getBoundDeviceId())
      return *getBoundDeviceId();
    const c10::DeviceType type = device_ ? device_->type() : at::hasCUDA() ? c10::kCUDA : c10::kCPU;
    if (type == c10::kCPU)
      return type;
    if (!options.device_ids.empty())
      return c10::Device(type, static_cast<c10::DeviceIndex>(options.device_ids[0]));
    return device_ ? *device_ : c10::impl::VirtualGuardImpl(type).getDevice();
  }

  /* Of a group of one rank NCCL makes no connection. */
  void tell_use(int use) {
    if (size_ == 1 || (uses_ | use) == uses_)
      return;
    uses_ |= use;
    if (on_use)
      on_use(number_, size_, uses_);
  }

  void check(const Tensors &tensors) const {
    for (const at::Tensor &tensor : tensors)
      TORCH_CHECK(!is_nccl_ || tensor.is_sparse() || tensor.is_contiguous(tensor.suggest_memory_format()),
                  "Tensors must be contiguous");
  }

  WorkPointer make_work(OpType type, const Tensors &outputs, const std::shared_ptr<Shelf> &shelf) {
    auto work = c10::make_intrusive<MirrorWork>(rank_, type, outputs, shelf);
    work->sequence = ++sequence_;
    if (is_nccl_)
      pending_.emplace_back(Clock::now(), shelf);
    return work;
  }

  /* Of those that nobody waited for the tensors are let go, as NCCL's watchdog has the next call do it at its end. */
  void release_forgotten() {
    while (!pending_.empty() && Clock::now() - pending_.front().first > FORGOTTEN) {
      pending_.front().second->clear();
      pending_.pop_front();
    }
  }

  /* mirror(shelf) makes the outputs; shelf is NULL where nothing has to be kept. */
  template <typename Mirror>
  WorkPointer call(OpType type, const Tensors &inputs, const Tensors &outputs, bool async, Mirror mirror) {
    check(inputs);
    check(outputs);
    const at::Tensor *any = !outputs.empty() ? &outputs[0] : !inputs.empty() ? &inputs[0] : nullptr;
    c10::OptionalDeviceGuard guard;
    if (any && any->defined() && !any->device().is_cpu()) {
      device_ = any->device();
      guard.reset_device(*device_);
    }
    if (is_nccl_)
      tell_use(use_of(type, is_root_));
    std::shared_ptr<Shelf> shelf = is_coalescing_ ? coalesced_shelf_ : std::make_shared<Shelf>();
    if (async) {
      shelf->add(inputs);
      shelf->add(outputs);
    }
    {
      const Unseen unseen;
      mirror(async ? shelf.get() : nullptr);
    }
    if (is_coalescing_) {
      coalesced_async_ |= async;
      coalesced_.insert(coalesced_.end(), outputs.begin(), outputs.end());
    } else {
      release_forgotten();
    }
    return async || !is_nccl_ ? make_work(type, outputs, shelf) : WorkPointer();
  }

  const std::string name_;
  const bool is_nccl_;
  const int number_; /* 1, 2, … of NCCL's; 0: not one */
  int uses_ = 0;
  bool is_root_ = false; /* of the gather or scatter that is called */
  uint64_t sequence_ = 0;
  std::optional<c10::Device> device_;                                        /* of the last call */
  std::deque<std::pair<Clock::time_point, std::shared_ptr<Shelf>>> pending_; /* under NCCL */
  bool is_coalescing_ = false, coalesced_async_ = false;
  Tensors coalesced_;
  std::shared_ptr<Shelf> coalesced_shelf_;
  Tensors sent_; /* on the host */
};

/* Python takes the backend out of the group again, and registers it where it likes. */
void put_mirror(const c10::intrusive_ptr<c10d::ProcessGroup> &group, const std::string &name) {
  const c10::intrusive_ptr<c10d::Backend> backend =
      c10::make_intrusive<MirrorBackend>(group->getRank(), group->getSize(), name);
  group->setBackend(c10::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
}

} // namespace

TORCH_LIBRARY(shardledger_rehearsal, library) {
  library.def("put_mirror(__torch__.torch.classes.c10d.ProcessGroup group, str name) -> ()", &put_mirror);
}

extern "C" __attribute__((visibility("default"))) void slm_on_refusal(void (*function)(const char *)) {
  on_refusal = function;
}

/* function(number of the group of NCCL, its ranks, all uses so far): when a group is first put to a use. */
extern "C" __attribute__((visibility("default"))) void slm_on_use(void (*function)(int, int, int)) {
  on_use = function;
}
