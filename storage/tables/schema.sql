-- The permanent tables of a ledger: one SQLite file for all ranks of a run.
-- Times are nanoseconds since the epoch (CLOCK_REALTIME of the rank's host), sizes are bytes, ranks come first.
-- Views that can be dropped and rebuilt are in views.sql. Readers check PRAGMA user_version.

CREATE TABLE meta( -- facts about the file itself
  key TEXT PRIMARY KEY, -- shardledger_version, source_directory, …
  value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE rank( -- one process of the job
  rank INTEGER PRIMARY KEY, -- global rank (RANK); 0 for a single process
  world_size INTEGER, -- number of ranks
  local_rank INTEGER, -- rank on its host
  host TEXT, -- host name
  pid INTEGER, -- process id
  device INTEGER, -- CUDA device index of its first allocation (attached late: that with the most memory): steps and peaks are of this device
  device_name TEXT, -- for example NVIDIA H100 80GB HBM3
  device_uuid TEXT, -- GPU-…
  device_bytes INTEGER, -- total memory of the device
  start_ns INTEGER, -- first event
  end_ns INTEGER, -- last event
  clean_exit INTEGER, -- 1 the process ended in order, 0 its log just stops
  events INTEGER, -- events read from its log
  events_lost INTEGER, -- events that could not be recorded or read; see gap
  torch_version TEXT,
  nccl_version TEXT,
  cuda_version TEXT, -- of torch
  allocator_backend TEXT, -- native, cudaMallocAsync, or uncached: PYTORCH_NO_CUDA_MEMORY_CACHING
  allocator_config TEXT, -- PYTORCH_CUDA_ALLOC_CONF
  fidelity TEXT, -- bridge: allocations at their own instant and thread; history: read afterwards; none
  restored_allocations INTEGER -- allocations that were there before recording began, taken from a snapshot; they have no
                               -- step and no phase
);

CREATE TABLE gap( -- something is missing from the record here
  rank INTEGER NOT NULL,
  at_ns INTEGER NOT NULL, -- of dropped steps: where they began
  source TEXT NOT NULL, -- what lost it: log, nvtx, cupti, allocator, replay …
  lost INTEGER NOT NULL, -- number of events; 0 when unknown
  reason TEXT NOT NULL
);

CREATE TABLE module( -- one nn.Module
  id INTEGER PRIMARY KEY, -- unique over all ranks
  rank INTEGER NOT NULL,
  fqn TEXT NOT NULL, -- fully qualified name; empty for a root
  class TEXT, -- Python class name
  parent_id INTEGER, -- module.id; NULL for a root
  root_id INTEGER, -- module.id of the root of its tree; its own for a root
  depth INTEGER, -- 0 for a root
  is_fsdp INTEGER, -- 1 for an FSDP unit
  wraps TEXT, -- it stands for a wrapper and the module in it: the wrapper's attribute, _checkpoint_wrapped_module or DDP's module
  param_bytes INTEGER, -- parameters on this rank, children included (shards where sharded)
  buffer_bytes INTEGER -- buffers likewise
);

CREATE TABLE step( -- one training step of a rank: from its first zero_grad or forward to the end of its optimizer step
  rank INTEGER NOT NULL,
  step INTEGER NOT NULL, -- 0, 1, …, upwards in the order in which they began; see renumbered_step
  same_as INTEGER, -- step whose rows stand for this one's; NULL: own rows
  start_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  peak_ns INTEGER, -- instant of the highest allocated bytes; this and all sums are NULL where allocations were not recorded
  peak_phase_id INTEGER, -- phase of the allocation that reached it; NULL when nothing was allocated in the step
  peak_module_id INTEGER, -- module that this phase serves
  peak_requested_bytes INTEGER, -- requested_bytes.all.peak of torch.cuda.memory_stats; these and all requested,
                                -- reserved and free bytes are NULL under cudaMallocAsync, and where PyTorch keeps no cache
  peak_allocated_bytes INTEGER, -- allocated_bytes.all.peak
  peak_active_bytes INTEGER, -- active_bytes.all.peak
  peak_reserved_bytes INTEGER, -- reserved_bytes.all.peak
  peak_device_bytes INTEGER, -- highest used bytes of the device among the step's samples and the last one before it; NULL without samples
  before_allocated_bytes INTEGER, -- highest allocated bytes between the step before (or the start) and this one:
                                  -- setup, evaluation, checkpoints
  before_reserved_bytes INTEGER, -- highest reserved bytes there
  end_requested_bytes INTEGER, -- the same four at the step's end
  end_allocated_bytes INTEGER,
  end_active_bytes INTEGER,
  end_reserved_bytes INTEGER,
  end_largest_free_bytes INTEGER, -- largest free block in PyTorch's cache then: a larger request needs the driver
  end_inactive_split_bytes INTEGER, -- free bytes then in segments that also hold live memory: they can't be given back
  checked INTEGER, -- 1: PyTorch's own statistics agreed at the step's end, 0: they differed, NULL: not compared
  PRIMARY KEY(rank, step)
) WITHOUT ROWID;

CREATE TABLE renumbered_step( -- a step that was recorded with another number, which was not above those before it: it has the next one
  rank INTEGER NOT NULL,
  step INTEGER NOT NULL, -- step.step
  recorded INTEGER NOT NULL, -- its number as recorded
  PRIMARY KEY(rank, step)
) WITHOUT ROWID;

CREATE TABLE phase( -- a stretch of time on one thread: a range with a meaning
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL,
  tid INTEGER NOT NULL, -- kernel thread id
  kind TEXT NOT NULL, -- step, forward, backward, recompute, unshard, … (docs/categories.md)
  name TEXT NOT NULL, -- the range's own name
  module_id INTEGER, -- module that it serves
  step INTEGER, -- NULL before the first and after the last step
  call_index INTEGER, -- 0, 1, … among the phases of this kind and module in the step
  start_ns INTEGER NOT NULL,
  end_ns INTEGER, -- NULL: still open when the log ended
  parent_id INTEGER -- phase around its start; what autograd's threads run lies in the backward of the thread that called it
);

CREATE TABLE allocation( -- one tensor-level allocation of PyTorch's allocator, from malloc to free
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL,
  device INTEGER NOT NULL, -- CUDA device index
  address INTEGER NOT NULL, -- device address
  bytes INTEGER NOT NULL, -- of the block: what allocated_bytes counts
  requested_bytes INTEGER NOT NULL, -- what was asked for
  stream INTEGER NOT NULL, -- cudaStream_t; 0 is the default stream
  pool TEXT, -- NULL: the shared pool; else the MemPool's id, a.b
  category TEXT NOT NULL, -- docs/categories.md
  detail TEXT, -- refines the category
  name TEXT, -- for example the parameter's FQN, where it is known
  module_id INTEGER, -- module that owns it
  phase_id INTEGER, -- innermost phase at its allocation
  step INTEGER, -- step of its allocation; NULL before the first
  tid INTEGER NOT NULL, -- allocating thread
  alloc_ns INTEGER NOT NULL,
  free_ns INTEGER, -- the tensor died; NULL: alive at the end of the log; the at_ns of dropped steps in gap: within these, when is not known
  complete_ns INTEGER, -- no stream used it any more
  free_phase_id INTEGER, -- innermost phase at its free
  decided_by TEXT NOT NULL, -- name of the rule that chose the category
  last_step INTEGER -- last step at whose end it was alive; NULL: none
);

CREATE TABLE segment( -- one driver-level allocation or mapping
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL,
  device INTEGER NOT NULL,
  address INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  owner TEXT NOT NULL, -- pytorch, or the file name of the library that called the driver
  api TEXT NOT NULL, -- driver function, or the allocator's action
  stream INTEGER,
  alloc_ns INTEGER NOT NULL,
  free_ns INTEGER, -- NULL: alive at the end of the log
  phase_id INTEGER, -- innermost phase of the calling thread
  module_id INTEGER, -- module that this phase serves
  step INTEGER -- NULL outside steps
);

CREATE TABLE host_segment( -- one allocation of pinned (page-locked) host memory by the driver: the host's memory, not the GPU's
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL,
  address INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  owner TEXT NOT NULL, -- pytorch, or the file name of the library that called the driver
  api TEXT NOT NULL, -- driver function; cuMemHostRegister pins memory that is there already
  alloc_ns INTEGER NOT NULL,
  free_ns INTEGER, -- NULL: alive at the end of the log
  phase_id INTEGER, -- innermost phase of the calling thread
  module_id INTEGER, -- module that this phase serves
  step INTEGER -- NULL outside steps
);

CREATE TABLE gpu_code( -- GPU code was loaded or unloaded: kernels are, when they are first needed
  rank INTEGER NOT NULL,
  device INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  loaded INTEGER NOT NULL, -- 1 loaded, 0 unloaded
  image_bytes INTEGER NOT NULL, -- of the image; on the device it takes another size, see device_owner's gpu_code
  phase_id INTEGER, -- innermost phase of the calling thread
  module_id INTEGER, -- nn.Module that this phase serves
  step INTEGER -- NULL outside steps
);

CREATE TABLE context( -- a CUDA context was created or destroyed
  rank INTEGER NOT NULL,
  device INTEGER NOT NULL, -- another device than the rank's own is mostly a mistake, and costs half a GiB there
  context INTEGER NOT NULL, -- CUPTI's id
  at_ns INTEGER NOT NULL,
  created INTEGER NOT NULL -- 1 created, 0 about to be destroyed
);

CREATE TABLE snapshot( -- what the whole device held when a module reached a state
  rank INTEGER NOT NULL,
  step INTEGER NOT NULL,
  module_id INTEGER NOT NULL,
  call_index INTEGER NOT NULL, -- 0, 1, … calls of this module that reached this state in the step
  state TEXT NOT NULL, -- Before Pre-Forward, …, Peak Backward (docs/categories.md)
  at_ns INTEGER NOT NULL,
  category TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  tracker_bytes INTEGER NOT NULL, -- what PyTorch's tracker shows under its word for this category (docs/categories.md)
  PRIMARY KEY(rank, step, module_id, call_index, state, category)
) WITHOUT ROWID;

CREATE TABLE peak( -- the highest point while a module was in a phase; module_id NULL: the whole step
  rank INTEGER NOT NULL,
  step INTEGER NOT NULL,
  module_id INTEGER,
  phase TEXT NOT NULL, -- step, forward, backward, recompute, eval, optimizer_step
  at_ns INTEGER NOT NULL,
  allocated_bytes INTEGER NOT NULL, -- of the whole device
  own_bytes INTEGER, -- highest bytes that the module itself owned in the phase; NULL without a module
  own_with_children_bytes INTEGER, -- highest bytes that it and all modules below it owned together at one instant
  UNIQUE(rank, step, module_id, phase)
);

CREATE TABLE peak_category( -- what was allocated at that point, by category
  rank INTEGER NOT NULL,
  step INTEGER NOT NULL,
  module_id INTEGER,
  phase TEXT NOT NULL,
  category TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  UNIQUE(rank, step, module_id, phase, category)
);

CREATE TABLE peak_owner( -- what was allocated at each step's peak, by category, module and phase of allocation
  rank INTEGER NOT NULL,
  step INTEGER NOT NULL,
  category TEXT NOT NULL,
  detail TEXT,
  module_id INTEGER,
  phase TEXT, -- kind of the phase that allocated it
  bytes INTEGER NOT NULL,
  allocations INTEGER NOT NULL
);

CREATE TABLE communicator( -- one NCCL communicator of a rank
  rank INTEGER NOT NULL,
  comm INTEGER NOT NULL, -- NCCL's communicator id, the same on all its ranks
  nranks INTEGER, -- number of ranks
  comm_rank INTEGER, -- rank within it
  name TEXT, -- given by the program, where NCCL's profiler told it
  device_bytes INTEGER, -- the most device memory that NCCL held for it; 0 also when the driver's calls were not recorded
  start_ns INTEGER, -- its initialisation on this rank; NULL where NCCL's ranges do not tell it
  end_ns INTEGER
);

CREATE TABLE collective( -- one NCCL call of a rank
  id INTEGER PRIMARY KEY,
  rank INTEGER NOT NULL,
  comm INTEGER, -- communicator.comm; NULL when NCCL does not say
  seq INTEGER, -- 0, 1, … collectives of the communicator in call order; of sends and receives, those with the same peer
  operation TEXT NOT NULL, -- AllGather, ReduceScatter, …
  bytes INTEGER, -- message size as NCCL counts it: of an all-gather and a reduce-scatter one rank's share
  reduction TEXT, -- Sum, Avg, …; NULL also for the program's own
  root INTEGER, -- rank in the communicator, of operations that have one
  peer INTEGER, -- likewise of sends and receives
  module_id INTEGER, -- module whose parameters or gradients it moved
  step INTEGER,
  phase_id INTEGER, -- innermost phase of the call
  tid INTEGER, -- calling thread
  enqueue_ns INTEGER NOT NULL, -- host call
  start_ns INTEGER, -- on the device; NULL when its kernel is not known
  end_ns INTEGER, -- NULL also when it had not ended at the end of the log
  stream INTEGER, -- CUPTI stream id
  send_allocation_id INTEGER, -- allocation.id of the buffer, where it is known
  receive_allocation_id INTEGER,
  datatype TEXT, -- this and the next three only where NCCL's profiler told them
  algorithm TEXT, -- RING, TREE, NVLS …
  protocol TEXT, -- LL, LL128, SIMPLE
  channels INTEGER,
  kernel_calls INTEGER, -- calls that the same kernel served: 1 alone; of a group they share start_ns and end_ns
  joined_by TEXT, -- how its kernel was found: correlation (the launch), order (n-th call, n-th kernel), or NULL
  exposed_ns INTEGER, -- of start_ns … end_ns, the part in which none of the process's other kernels ran on this device;
                     -- NULL where compute kernels were not recorded (SHARDLEDGER_KERNELS=all)
  untimed TEXT -- why its kernel is not known: captured (in a CUDA graph, whose replays are kernels without calls),
               -- no_launch (it launched none: copy engines, one rank alone), untimed_step (of a step without device times),
               -- no_kernel (launched, but not recorded),
               -- ambiguous (kernels of its group can't be told apart), not_recorded (nor were launches); else NULL
);

CREATE TABLE collective_total( -- NCCL's calls of steps that repeat another one (step.same_as), whose own rows are left out: sums; calls whose device times came late have rows of their own
  rank INTEGER NOT NULL,
  step INTEGER NOT NULL,
  before INTEGER NOT NULL, -- 1: calls between the step before and this one, 0: in the step
  comm INTEGER, -- communicator.comm; NULL when NCCL does not say
  operation TEXT NOT NULL, -- AllGather, ReduceScatter, …
  calls INTEGER NOT NULL,
  bytes INTEGER NOT NULL, -- of all calls
  timed INTEGER NOT NULL, -- calls whose kernel is known
  duration_ns INTEGER NOT NULL, -- of the timed ones on the device, in sum; of a kernel that served several calls each has its part
  min_duration_ns INTEGER, -- of the timed ones
  max_duration_ns INTEGER,
  delay_ns INTEGER NOT NULL -- of the timed ones, from the host's call to the start on the device, in sum
);

CREATE TABLE rank_steps( -- a rank's steps, counted: `step` has one row for each
  rank INTEGER PRIMARY KEY, -- ranks with steps
  steps INTEGER NOT NULL,
  steps_in_full INTEGER NOT NULL, -- steps with rows of their own: step.same_as is NULL
  steps_agreed INTEGER NOT NULL, -- step.checked is 1
  steps_differed INTEGER NOT NULL, -- step.checked is 0
  first_step INTEGER NOT NULL,
  last_step INTEGER NOT NULL -- numbers in between may be missing, where events were lost
);

CREATE TABLE rank_collectives( -- collective_total, summed up over a rank's steps
  rank INTEGER NOT NULL,
  comm INTEGER, -- communicator.comm; NULL when NCCL does not say
  operation TEXT NOT NULL, -- AllGather, ReduceScatter, …
  calls INTEGER NOT NULL,
  bytes INTEGER NOT NULL, -- of all calls
  timed INTEGER NOT NULL, -- calls whose kernel is known
  duration_ns INTEGER NOT NULL -- of the timed ones on the device, in sum
);

CREATE TABLE device_sample( -- cuMemGetInfo: the whole device, all processes
  rank INTEGER NOT NULL,
  device INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  total_bytes INTEGER NOT NULL,
  used_bytes INTEGER NOT NULL,
  own_bytes INTEGER, -- what NVML says this process holds, context included; NULL: not asked, or it can't tell
  other_bytes INTEGER -- and all other processes
);

CREATE TABLE device_owner( -- who held what of the device at a sample (docs/device.md); together they are used_bytes
  rank INTEGER NOT NULL,
  device INTEGER NOT NULL,
  at_ns INTEGER NOT NULL, -- device_sample.at_ns
  owner TEXT NOT NULL, -- allocated, cached, nccl, cuda_context, … or the file name of a library
  bytes INTEGER NOT NULL
);

CREATE TABLE oom( -- a request that PyTorch's allocator refused, or the driver to another library, for good
  rank INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  requested_bytes INTEGER NOT NULL, -- of the allocator: rounded as it rounds
  free_bytes INTEGER, -- of the device; NULL where nobody asked
  allocated_bytes INTEGER, -- this and the next ones of PyTorch's allocator; NULL where its allocations were not recorded
  reserved_bytes INTEGER,
  largest_free_bytes INTEGER, -- largest free block in its cache
  device INTEGER NOT NULL,
  source TEXT NOT NULL, -- allocator, or the file name of the library that asked the driver
  active_bytes INTEGER,
  inactive_split_bytes INTEGER, -- free, in segments that also hold live memory
  phase_id INTEGER, -- innermost phase of the asking thread
  module_id INTEGER, -- module that this phase serves
  step INTEGER -- NULL outside steps
);

CREATE TABLE oom_owner( -- what was allocated when a request was refused, as in peak_owner: of the first and the last 64 refused ones of a step
  rank INTEGER NOT NULL,
  at_ns INTEGER NOT NULL, -- oom.at_ns
  category TEXT NOT NULL,
  detail TEXT,
  module_id INTEGER,
  phase TEXT, -- kind of the phase that allocated it
  bytes INTEGER NOT NULL,
  allocations INTEGER NOT NULL
);

CREATE TABLE kernel( -- device times of kernels (by default NCCL's only)
  rank INTEGER NOT NULL,
  device INTEGER NOT NULL,
  stream INTEGER NOT NULL, -- CUPTI stream id
  name TEXT NOT NULL,
  correlation INTEGER NOT NULL, -- joins it to the API call
  start_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL
);

CREATE TABLE memcpy( -- device times of copies
  rank INTEGER NOT NULL,
  device INTEGER NOT NULL,
  stream INTEGER NOT NULL,
  kind INTEGER NOT NULL, -- 1 HtoD, 2 DtoH, 8 DtoD, 10 PtoP
  bytes INTEGER NOT NULL,
  correlation INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL
);

CREATE TABLE memset( -- device times of memsets
  rank INTEGER NOT NULL,
  device INTEGER NOT NULL,
  stream INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  correlation INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL
);

CREATE TABLE source( -- what was recorded by what, and what was not
  rank INTEGER NOT NULL,
  source TEXT NOT NULL, -- cupti_callback, cupti_activity, nvtx, torch_bridge, companion …, log
  state TEXT NOT NULL, -- on, off, failed; of the log newer: recorded by a newer version, and not all of it was read
  reason TEXT NOT NULL,
  at_ns INTEGER NOT NULL
);
