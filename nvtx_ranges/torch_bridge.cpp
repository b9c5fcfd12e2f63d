/*
 * The torch bridge: what PyTorch knows in C++, handed on without Python in between.
 *
 * The companion compiles this file against the installed torch at first use (bridge.py), since torch's C++ interfaces
 * have no stable layout, loads it with ctypes and passes the functions to call. Two sources, each started once:
 *   - record_function ranges (RecordScope::USER_SCOPE), on the thread that runs them;
 *   - entries of the CUDA caching allocator's trace. They arrive under the allocator's lock: nothing here may take the
 *     GIL, call PyTorch or call CUDA.
 * And PyTorch's table of workspaces for cuBLAS, read when asked for; requests that the allocator refuses, handed to
 * Python where its lock can be waited for; where in the code memory is asked for (torch_sites.h); and the functions
 * that Python calls at every range and module (torch_calls.h). Nothing throws out of here, and neither source can be
 * detached again: that is the caller's functions' business.
 *
 * SHARDLEDGER_ALLOCATOR is defined when torch has CUDA and the CUDA headers were found, SHARDLEDGER_WORKSPACES when
 * those of its libraries were found too.
 */
#include "events.h"
#include "kinds.h"
#include "ranges.h"
#include "shardledger.h"
#include "torch_calls.h"
#include "torch_sites.h"

#include <ATen/record_function.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef SHARDLEDGER_ALLOCATOR
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#endif
#ifdef SHARDLEDGER_WORKSPACES
#include <ATen/cuda/CUDAContextLight.h>
#endif

extern "C" {
/* Functions of the plugin, which the companion hands over; what it hands over for ranges is in ranges.h. */
typedef decltype(sl_allocator_event) slb_allocator_fn;
typedef decltype(sl_allocator_sequence) slb_sequence_fn;
typedef decltype(sl_allocator_restore) slb_restore_fn;
typedef decltype(sl_allocator_existing) slb_existing_fn;
typedef decltype(sl_allocator_stats) slb_stats_fn;
typedef decltype(sl_tag) slb_tag_fn;
typedef decltype(sl_frame) slb_frame_fn;
typedef decltype(sl_site) slb_site_fn;
typedef decltype(sl_allocator_site) slb_allocator_site_fn;
typedef decltype(sl_allocator_note) slb_allocator_note_fn;
typedef decltype(sl_use) slb_use_fn;
typedef decltype(sl_use_watch) slb_use_watch_fn;
/* Functions of Python. */
typedef void slb_refused_fn(int device, uint64_t bytes);
typedef int slb_finalizing_fn(void);
typedef void *slb_thread_state_fn(void);
}

#ifdef SHARDLEDGER_WORKSPACES
/*
 * Stands in for what this torch doesn't declare: torch's own functions are no templates, and so are preferred. A
 * namespace of its own, beside torch's, so that neither hides the other.
 */
namespace slb_undeclared {
struct NoTable {};
template <typename = void> NoTable cublas_handle_stream_to_workspace() {
  return {};
}
template <typename = void> NoTable cublaslt_handle_stream_to_workspace() {
  return {};
}
} // namespace slb_undeclared
#endif

namespace {

slr_push_fn *push;
slr_pop_fn *pop;
slr_start_fn *start;
slr_end_fn *end;
thread_local std::string failure;

/* Set for ranges that may end on another thread: a collective's, which lasts until its work is done. */
struct AsyncRange : at::ObserverContext {
  uint64_t id = 0;
};

/*
 * Torch's own range around an optimizer's step, closure included. The companion has one that is open only while the
 * optimizer itself is at work.
 */
bool is_the_companions(const at::RecordFunction &function) {
  static constexpr char prefix[] = "Optimizer.step#";
  return std::strncmp(function.name(), prefix, sizeof prefix - 1) == 0;
}

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction &function) {
  if (is_the_companions(function))
    return nullptr;
  if (!function.isAsync()) {
    push(SL_KIND_record_function, function.name(), 0);
    return nullptr;
  }
  auto range = std::make_unique<AsyncRange>();
  range->id = start(SL_KIND_record_function, function.name(), 0);
  return range;
}

void leave(const at::RecordFunction &function, at::ObserverContext *context) {
  if (context)
    end(static_cast<AsyncRange *>(context)->id);
  else if (!is_the_companions(function))
    pop();
}

/* Runs something that may throw; 0, or -1 and the reason in slb_error. */
template <typename Function> int guarded(Function function) noexcept {
  try {
    function();
    return 0;
  } catch (const std::exception &error) {
    failure = error.what();
  } catch (...) {
    failure = "unknown exception";
  }
  return -1;
}

#ifdef SHARDLEDGER_ALLOCATOR
slb_allocator_fn *allocator_event;
slb_allocator_note_fn *allocator_note;
std::atomic<slb_allocator_site_fn *> allocator_site;

/* Entries carry what the program said of them since torch 2.11. */
template <typename Entry> auto note_of(const Entry &entry, int) -> decltype(entry.user_metadata_.c_str()) {
  return entry.user_metadata_.c_str();
}
template <typename Entry> const char *note_of(const Entry &, long) {
  return "";
}

/* What the recorder of torch_sites.h returned for this allocation; a context of the user's own history is none. */
void record_site(const c10::GatheredContext *context, int device) {
  const auto *site = dynamic_cast<const sites::Site *>(context);
  slb_allocator_site_fn *record = allocator_site.load(std::memory_order_acquire);
  if (site && record)
    record(device, site->id);
}

/* By name: the values of torch's enumeration differ between its versions, and so do the entries that it has. */
template <typename Entry> int action_of(const Entry &entry) {
  switch (entry.action_) {
  case Entry::ALLOC: return SL_ALLOC;
  case Entry::FREE_REQUESTED: return SL_FREE_REQUESTED;
  case Entry::FREE_COMPLETED: return SL_FREE_COMPLETED;
  case Entry::SEGMENT_ALLOC: return SL_SEGMENT_ALLOC;
  case Entry::SEGMENT_FREE: return SL_SEGMENT_FREE;
  case Entry::SEGMENT_MAP: return SL_SEGMENT_MAP;
  case Entry::SEGMENT_UNMAP: return SL_SEGMENT_UNMAP;
  case Entry::SNAPSHOT: return SL_ALLOCATOR_SNAPSHOT;
  case Entry::OOM: return SL_OUT_OF_MEMORY;
  default: return SL_ALLOCATOR_OTHER;
  }
}

struct Pool {
  uint64_t owner, id;
};

/* Entries carry their memory pool since torch 2.8; before, every entry is put into the shared pool. */
template <typename Entry> auto pool_of(const Entry &entry, int) -> decltype(entry.mempool_.first, Pool()) {
  return {static_cast<uint64_t>(entry.mempool_.first), static_cast<uint64_t>(entry.mempool_.second)};
}
template <typename Entry> Pool pool_of(const Entry &, long) {
  return {0, 0};
}

/* Of a snapshot's segment: as its entries say, so that both name the same place. */
template <typename Entry, typename Segment>
auto pool_of_segment(const Segment &segment, int) -> decltype(std::declval<Entry>().mempool_.first, Pool()) {
  return {static_cast<uint64_t>(segment.owner_private_pool_id.first),
          static_cast<uint64_t>(segment.owner_private_pool_id.second)};
}
template <typename Entry, typename Segment> Pool pool_of_segment(const Segment &, long) {
  return {0, 0};
}

/*
 * The instants of one snapshot. PyTorch goes from device to device: under each one's lock it copies the blocks and then
 * traces SNAPSHOT on the calling thread (for device 0, whichever device it is). So the n-th entry is device n's, and
 * the number of that device's next event tells where among the events its blocks stand.
 */
struct Instants {
  static constexpr int devices_max = SL_DEVICES_MAX;
  slb_sequence_fn *sequence_of;
  uint32_t sequence[devices_max];
  int devices;
};
thread_local Instants *instants; /* while this thread takes a snapshot for slb_restore */

void take_instant() {
  if (instants->devices < Instants::devices_max)
    instants->sequence[instants->devices] = instants->sequence_of(instants->devices);
  instants->devices++;
}

auto take_snapshot(Instants &out) {
  struct Taking {
    explicit Taking(Instants *out) {
      instants = out;
    }
    ~Taking() {
      instants = nullptr;
    }
  } taking(&out);
  return c10::cuda::CUDACachingAllocator::snapshot();
}

template <typename Block> int state_of(const Block &block) {
  return block.allocated ? SL_BLOCK_ALLOCATED : block.active ? SL_BLOCK_PENDING : SL_BLOCK_FREE;
}
#endif

#ifdef SHARDLEDGER_WORKSPACES
struct Workspace {
  int device;
  uint64_t address;
  bool operator==(const Workspace &other) const {
    return device == other.device && address == other.address;
  }
};

/* Since 2.15 an entry has its size beside its memory. */
const at::DataPtr &memory_of(const at::DataPtr &entry) {
  return entry;
}
const at::DataPtr &memory_of(const std::pair<at::DataPtr, size_t> &entry) {
  return entry.first;
}

/*
 * Only tables with a mutex can be read while other threads multiply matrices: those of newer versions. PyTorch makes a
 * workspace while it holds the mutex, so at a refused request this thread may hold it itself: then nobody may wait.
 */
template <typename Table>
auto read_table(Table &table, std::vector<Workspace> &out, bool waits, int) -> decltype(table.map, bool()) {
  std::shared_lock<decltype(table.mutex)> lock(table.mutex, std::defer_lock);
  if (waits)
    lock.lock();
  else if (!lock.try_lock())
    return false;
  for (const auto &entry : table.map)
    if (const at::DataPtr &memory = memory_of(entry.second); memory.get())
      out.push_back({memory.device().index(), reinterpret_cast<uint64_t>(memory.get())});
  return true;
}
template <typename Table> bool read_table(Table &, std::vector<Workspace> &, bool, long) {
  return false;
}
template <typename Table> bool read_table(Table &&table, std::vector<Workspace> &out, bool waits) {
  return read_table(table, out, waits, 0);
}

bool read_workspaces(std::vector<Workspace> &out, bool waits) {
  using namespace at::cuda;
  using namespace slb_undeclared;
  bool known = read_table(cublas_handle_stream_to_workspace(), out, waits);
  read_table(cublaslt_handle_stream_to_workspace(), out, waits);
  return known;
}
#endif

} // namespace

/* The companion reads these declarations as it reads shardledger.h. */
#define SLB_API extern "C" __attribute__((visibility("default")))
#define SLB_API_WAITS SLB_API /* for a lock of torch's, whose holder may want Python's */

/* Why the last call of this thread failed; owned by the bridge, valid until the next call. */
SLB_API const char *slb_error() {
  return failure.c_str();
}

/* 1 when the allocator's part is compiled in. */
SLB_API int slb_has_allocator() {
#ifdef SHARDLEDGER_ALLOCATOR
  return 1;
#else
  return 0;
#endif
}

/* Every record_function from now on becomes a range of these functions. A second call does nothing. */
SLB_API int slb_start_ranges(slr_push_fn *push_fn, slr_pop_fn *pop_fn, slr_start_fn *start_fn, slr_end_fn *end_fn) {
  static std::atomic<bool> started{false};
  if (started.exchange(true))
    return 0;
  push = push_fn, pop = pop_fn, start = start_fn, end = end_fn;
  return guarded(
      [] { at::addGlobalCallback(at::RecordFunctionCallback(enter, leave).scopes({at::RecordScope::USER_SCOPE})); });
}

/*
 * From now on slb_python_function has functions, whose ranges go to these. 0, or -1 and slb_error where this Python
 * lacks what they need. The GIL is held here and there.
 */
SLB_API int slb_start_calls(slr_push_fn *push_fn, slr_pop_fn *pop_fn, slr_start_fn *start_fn, slr_end_fn *end_fn) {
  calls::push = push_fn, calls::pop = pop_fn, calls::start = start_fn, calls::end = end_fn;
  if (calls::python.load())
    return 0;
  failure = "this Python lacks a function of its stable interface";
  return -1;
}

/* A new reference to the function of torch_calls.h of this name; NULL where there is none. */
SLB_API void *slb_python_function(const char *name) {
  return calls::function(name);
}

/*
 * Every entry of the allocator's trace goes to event_fn, what the program said of it to note_fn before. 0 when that is
 * so, also from an earlier call; 1 when the allocator is not initialised yet: call again later; -1 and slb_error when
 * it can't be.
 */
SLB_API int slb_start_allocator(slb_allocator_fn *event_fn, slb_allocator_note_fn *note_fn) {
#ifdef SHARDLEDGER_ALLOCATOR
  if (allocator_event)
    return 0;
  bool ready = false;
  int r = guarded([&] {
    auto *allocator = c10::cuda::CUDACachingAllocator::get();
    ready = allocator && allocator->initialized();
  });
  if (r != 0 || !ready)
    return r != 0 ? r : 1;
  allocator_event = event_fn, allocator_note = note_fn;
  r = guarded([] {
    c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([](const auto &entry) {
      int action = action_of(entry);
      if (action == SL_ALLOCATOR_SNAPSHOT && instants) {
        take_instant();
        return;
      }
      const char *note = action == SL_ALLOC ? note_of(entry, 0) : "";
      if (*note)
        allocator_note(static_cast<int>(entry.device_), note);
      if (action == SL_ALLOC && entry.context_)
        record_site(entry.context_.get(), static_cast<int>(entry.device_));
      Pool pool = pool_of(entry, 0);
      allocator_event(static_cast<int>(entry.device_), action, static_cast<uint64_t>(entry.addr_),
                      static_cast<uint64_t>(entry.size_), reinterpret_cast<uint64_t>(entry.stream_), pool.owner,
                      pool.id);
    });
  });
  if (r != 0)
    allocator_event = nullptr;
  return r;
#else
  failure = "built without the CUDA headers";
  return -1;
#endif
}

/*
 * Every request that the allocator refuses for good, after it has emptied its cache, goes to refused_fn, which takes
 * the GIL. PyTorch calls its observers on the thread that asked and without the allocator's lock, so that they may: its
 * own Python interface does the same. Left out are a request from within refused_fn; threads that Python does not know,
 * such as a library's own, which may hold locks that a holder of the GIL waits for; and an interpreter that ends, which
 * never gives its lock. finalizing_fn and thread_state_fn are Python's, and need no GIL. A second call does nothing.
 */
SLB_API int slb_observe_refusals(slb_refused_fn *refused_fn, slb_finalizing_fn *finalizing_fn,
                                 slb_thread_state_fn *thread_state_fn) {
#ifdef SHARDLEDGER_ALLOCATOR
  static std::atomic<bool> observed{false};
  if (observed.exchange(true))
    return 0;
  return guarded([=] {
    c10::cuda::CUDACachingAllocator::attachOutOfMemoryObserver(
        [=](int64_t device, auto bytes, auto /* total */, auto /* free */) {
          static thread_local bool inside;
          if (inside || finalizing_fn() || !thread_state_fn())
            return;
          inside = true;
          refused_fn(static_cast<int>(device), static_cast<uint64_t>(bytes));
          inside = false;
        });
  });
#else
  (void)refused_fn, (void)finalizing_fn, (void)thread_state_fn;
  failure = "built without the CUDA headers";
  return -1;
#endif
}

/*
 * What the allocator held before slb_start_allocator: for every device a restore_fn, then an existing_fn for each of
 * its blocks, from a snapshot that is taken now. Returns the number of blocks, or -1 and slb_error. Takes the
 * allocator's lock. Nothing is held while the functions are called; sequence_fn excepted, which is called under that
 * lock.
 */
SLB_API_WAITS int64_t slb_restore(slb_sequence_fn *sequence_fn, slb_restore_fn *restore_fn,
                                  slb_existing_fn *existing_fn) {
#ifdef SHARDLEDGER_ALLOCATOR
  int64_t found = 0;
  int r = guarded([&] {
    Instants taken = {sequence_fn, {}, 0};
    auto snapshot = take_snapshot(taken);
    using Entry = typename decltype(snapshot.device_traces)::value_type::value_type;
    for (const auto &segment : snapshot.segments)
      if (segment.device >= taken.devices || segment.device >= Instants::devices_max)
        throw std::runtime_error("PyTorch's snapshot has segments of a device that it did not trace");
    for (int device = 0; device < taken.devices && device < Instants::devices_max; device++) {
      uint32_t segments = 0, blocks = 0;
      for (const auto &segment : snapshot.segments)
        if (segment.device == device)
          segments++, blocks += static_cast<uint32_t>(segment.blocks.size());
      if (blocks == 0 && taken.sequence[device] == 0)
        continue; /* not used until now */
      restore_fn(device, taken.sequence[device], segments, blocks);
      found += blocks;
      for (const auto &segment : snapshot.segments) {
        uint64_t address = segment.address;
        Pool pool = pool_of_segment<Entry>(segment, 0);
        for (const auto &block : segment.blocks) {
          if (segment.device == device)
            existing_fn(device, address, block.size, block.requested_size, reinterpret_cast<uint64_t>(segment.stream),
                        pool.owner, pool.id, state_of(block), address == segment.address);
          address += block.size;
        }
      }
    }
  });
  return r != 0 ? r : found;
#else
  (void)sequence_fn, (void)restore_fn, (void)existing_fn;
  failure = "built without the CUDA headers";
  return -1;
#endif
}

/*
 * PyTorch's current figures of every device that has allocated, all pools, go to stats_fn, each at an instant between
 * two allocator events. Returns the allocated bytes of all; -1 where a device's could not be read, as other threads
 * kept allocating. Takes the allocator's lock.
 */
SLB_API_WAITS int64_t slb_allocator_stats(slb_sequence_fn *sequence_fn, slb_stats_fn *stats_fn) {
#ifdef SHARDLEDGER_ALLOCATOR
  int64_t allocated = 0;
  bool all = true;
  int r = guarded([&] {
    for (int device = 0; device < c10::cuda::device_count() && device < SL_DEVICES_MAX; device++) {
      uint32_t before = sequence_fn(device);
      bool taken = before == 0;
      for (int tries = 0; !taken && tries < 3; tries++, before = sequence_fn(device)) {
        const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
        taken = sequence_fn(device) == before;
        if (!taken)
          continue;
        /* Index 0 is the aggregate of all pools in every version; only the enumeration's place moved. */
        const auto current = [](const auto &stat) { return static_cast<uint64_t>(stat[0].current); };
        stats_fn(device, before, current(stats.requested_bytes), current(stats.allocated_bytes),
                 current(stats.active_bytes), current(stats.reserved_bytes));
        allocated += stats.allocated_bytes[0].current;
      }
      all = all && taken;
    }
  });
  return r != 0 || !all ? -1 : allocated;
#else
  (void)sequence_fn, (void)stats_fn;
  failure = "built without the CUDA headers";
  return -1;
#endif
}

/*
 * Tags the allocations that PyTorch made as workspaces for cuBLAS and cublasLt, one for each handle and stream, as
 * "cublas_workspace"; does nothing while they are those of the call before. 1 when this torch's tables can be read, 0
 * when not, -1 and slb_error. To be called by one thread at a time. waits: for the tables' locks; else a table that is
 * locked is left out.
 */
SLB_API_WAITS int slb_tag_workspaces(slb_tag_fn *tag_fn, int waits) {
#ifdef SHARDLEDGER_WORKSPACES
  static std::vector<Workspace> before;
  bool known = false;
  int r = guarded([&] {
    std::vector<Workspace> now;
    known = read_workspaces(now, waits != 0);
    if (now == before)
      return;
    for (const Workspace &workspace : now)
      tag_fn(workspace.device, workspace.address, "cublas_workspace", 0, "");
    before = std::move(now);
  });
  return r != 0 ? r : known;
#else
  (void)tag_fn;
  (void)waits;
  return 0;
#endif
}

/*
 * Gets ready to say where in the code memory is asked for; slb_follow_sites begins. Frames of files whose names begin
 * with own_files are left out. 0, or -1 and slb_error.
 */
SLB_API int slb_start_sites(slb_frame_fn *frame_fn, slb_site_fn *site_fn, slb_allocator_site_fn *allocator_site_fn,
                            const char *own_files) {
#ifdef SHARDLEDGER_ALLOCATOR
  return guarded([=] {
    if (!sites::start(frame_fn, site_fn, own_files))
      throw std::runtime_error("this Python does not have the functions that read its frames");
    allocator_site = allocator_site_fn;
  });
#else
  (void)frame_fn, (void)site_fn, (void)allocator_site_fn, (void)own_files;
  failure = "built without the CUDA headers";
  return -1;
#endif
}

/*
 * While operators are followed, what each of them uses on devices of this type ("cuda", "cpu") goes to use_fn; when
 * that begins and ends, to watch_fn. To be called after slb_start_sites and before slb_follow_sites. 0, or -1 and
 * slb_error.
 */
SLB_API int slb_start_uses(slb_use_fn *use_fn, slb_use_watch_fn *watch_fn, const char *device_type) {
  return guarded([=] {
    uses::device = c10::Device(device_type).type();
    uses::watch = watch_fn, uses::tell = use_fn;
  });
}

/*
 * From now on allocations get their call stack (1), and their operator too (2; 3 for a number of operators only,
 * between two stretches of 2), or neither (0). Returns 0; 1 when the program records a memory history of its own, which
 * is left alone; -1 and slb_error. To be called by one thread at a time, once the allocator is initialised. Takes the
 * allocator's lock, whose holders never want the GIL.
 */
SLB_API int slb_follow_sites(int mode) {
#ifdef SHARDLEDGER_ALLOCATOR
  using namespace c10::cuda::CUDACachingAllocator;
  static bool ours;
  bool theirs = false;
  int r = guarded([&] {
    const int before = sites::mode.load();
    const bool ready = get()->initialized();
    theirs = ready && !ours && isHistoryEnabled();
    if (theirs)
      mode = sites::OFF;
    if (mode == sites::OPERATORS)
      sites::forget_forwards();
    const bool goes_on = mode == sites::OPERATORS && before == sites::BETWEEN && sites::between_left.load() <= 0;
    sites::between_left = sites::between_max;
    sites::mode = mode;
    if ((mode >= sites::OPERATORS) != (before >= sites::OPERATORS) || goes_on)
      sites::follow_operators(mode >= sites::OPERATORS);
    const bool wanted = ready && mode != sites::OFF;
    if (wanted != ours) {
      sites::record_history(recordHistory, wanted, wanted ? RecordContext::ALLOC : RecordContext::NEVER);
      ours = wanted;
    }
  });
  return r != 0 ? r : theirs;
#else
  (void)mode;
  failure = "built without the CUDA headers";
  return -1;
#endif
}

/* Id of the site of this thread, now; 0 where there is none. The GIL is held. */
SLB_API uint32_t slb_site_now() {
  uint32_t id = 0;
  guarded([&] { id = sites::id_of(sites::site_now(sites::this_thread, true)); });
  return id;
}

/* Id of the site with the call stack that ends in this frame, a PyFrameObject, of a main thread that waits for this
 * one. */
SLB_API uint32_t slb_site_of_waiting(void *frame) {
  uint32_t id = 0;
  guarded([&] {
    sites::Thread &thread = sites::this_thread;
    id = sites::id_of(
        sites::site_of(thread, frames::stack_from(thread.last_stack, frame), thread.current.name, SL_STACK_OF_WAITING));
  });
  return id;
}
