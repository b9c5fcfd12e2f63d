/* What a call of a rehearsal's process group leaves behind: the tensors that it keeps, and the work to wait for. */
#ifndef SHARDLEDGER_MIRROR_WORK_H
#define SHARDLEDGER_MIRROR_WORK_H

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace mirror {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;

/* What must not be freed while a call may still use it. */
class Shelf {
public:
  void add(const Tensors &tensors) {
    const std::lock_guard<std::mutex> lock(mutex_);
    tensors_.insert(tensors_.end(), tensors.begin(), tensors.end());
  }
  void clear() {
    Tensors gone; /* freed outside of the lock */
    const std::lock_guard<std::mutex> lock(mutex_);
    gone.swap(tensors_);
  }

private:
  std::mutex mutex_;
  Tensors tensors_;
};

class MirrorWork : public c10d::Work {
public:
  MirrorWork(int rank, OpType type, Tensors outputs, std::shared_ptr<Shelf> shelf)
      : Work(rank, type), outputs_(std::move(outputs)), shelf_(std::move(shelf)) {
    std::vector<c10::Device> devices;
    if (!outputs_.empty() && outputs_[0].defined() && !outputs_[0].device().is_cpu()) {
      device_ = outputs_[0].device();
      devices.push_back(*device_);
      event_.emplace(device_->type());
      event_->record(c10::impl::VirtualGuardImpl(device_->type()).getStream(*device_));
    }
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()), devices);
    future_->markCompleted(c10::IValue(outputs_));
  }
  bool isCompleted() {
    return !event_ || event_->query();
  }
  bool isSuccess() const {
    return true;
  }
  int sourceRank() const {
    return 0;
  }
  Tensors result() {
    return outputs_;
  }
  void synchronize() {
    if (event_)
      event_->block(c10::impl::VirtualGuardImpl(device_->type()).getStream(*device_));
    shelf_->clear();
  }
  void blockCurrentStream() {
    synchronize();
  }
  bool wait(std::chrono::milliseconds) {
    synchronize();
    return true;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() {
    return future_;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() {
    auto result = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
    result->markCompleted(c10::IValue(0)); /* c10d::WorkResult::SUCCESS */
    return result;
  }
  uint64_t getSequencenumber() const {
    return sequence;
  }

  uint64_t sequence = 0;

private:
  Tensors outputs_;
  std::shared_ptr<Shelf> shelf_;
  std::optional<c10::Device> device_;
  std::optional<c10::Event> event_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

} // namespace mirror

#endif
