/* The ledger's rows, a function a table. */
#include "ledger_cells.h"
#include "plugin/format/events.h"
#include "storage/attribution/attribution.h"

#include <stdlib.h>
#include <string.h>

int sl_write_meta(struct sl_ledger_writer *writer, const char *key, const char *value, struct sl_error *error) {
  row_begin(writer, INSERT_meta);
  put_text(writer, key);
  put_text(writer, value);
  return row_end(writer, error);
}

int sl_write_rank(struct sl_ledger_writer *writer, const struct sl_rank_row *row, struct sl_error *error) {
  row_begin(writer, INSERT_rank);
  put_int(writer, writer->rank);
  put_known(writer, row->world_size, -1);
  put_known(writer, row->local_rank, -1);
  put_word(writer, row->host);
  put_known(writer, row->pid, -1);
  put_known(writer, row->device, -1);
  put_word(writer, row->device_name);
  put_word(writer, row->device_uuid);
  put_known(writer, (int64_t)row->device_bytes, 0);
  put_int(writer, (int64_t)row->start_ns);
  put_int(writer, (int64_t)row->end_ns);
  put_int(writer, row->clean_exit);
  put_int(writer, (int64_t)row->events);
  put_int(writer, (int64_t)row->events_lost);
  put_word(writer, row->torch_version);
  put_word(writer, row->nccl_version);
  put_word(writer, row->cuda_version);
  put_word(writer, row->allocator_backend);
  put_word(writer, row->allocator_config);
  put_word(writer, row->fidelity);
  put_int(writer, (int64_t)row->restored_allocations);
  return row_end(writer, error);
}

int sl_write_gap(struct sl_ledger_writer *writer, uint64_t at_ns, const char *source, uint64_t lost, const char *reason,
                 struct sl_error *error) {
  row_begin(writer, INSERT_gap);
  put_int(writer, writer->rank);
  put_int(writer, (int64_t)at_ns);
  put_text(writer, source);
  put_int(writer, (int64_t)lost);
  put_text(writer, reason);
  return row_end(writer, error);
}

int sl_write_module(struct sl_ledger_writer *writer, const struct sl_module_info *module, struct sl_error *error) {
  row_begin(writer, INSERT_module);
  put_int(writer, id_of(writer, module->id));
  put_int(writer, writer->rank);
  put_text(writer, module->fqn);
  put_word(writer, module->class_name);
  put_id(writer, module->parent);
  put_int(writer, id_of(writer, module->root));
  put_int(writer, module->depth);
  put_int(writer, (module->flags & SL_MODULE_FSDP) != 0);
  put_word(writer, module->flags & SL_MODULE_RECOMPUTE ? "_checkpoint_wrapped_module"
                   : module->flags & SL_MODULE_DDP     ? "module"
                                                       : NULL);
  put_int(writer, (int64_t)module->parameter_bytes);
  put_int(writer, (int64_t)module->buffer_bytes);
  return row_end(writer, error);
}

int sl_write_step(struct sl_ledger_writer *writer, const struct sl_step_row *row, struct sl_error *error) {
  if (writer->listener.step)
    writer->listener.step(writer->listener.context, row);
  sl_rank_sums_step(&writer->sums, row);
  const bool cache = row->recorded && !row->drivers_pool;
  row_begin(writer, INSERT_step);
  put_int(writer, writer->rank);
  put_int(writer, row->step);
  put_known(writer, row->same_as, -1);
  put_int(writer, (int64_t)row->start_ns);
  put_int(writer, (int64_t)row->end_ns);
  put_known(writer, row->recorded ? (int64_t)row->peak_ns : 0, 0);
  put_id(writer, row->peak_phase);
  put_id(writer, row->peak_module);
  put_sum(writer, row->peak.requested_bytes, cache);
  put_sum(writer, row->peak.allocated_bytes, row->recorded);
  put_sum(writer, row->peak.active_bytes, row->recorded);
  put_sum(writer, row->peak.reserved_bytes, cache);
  put_known(writer, (int64_t)row->peak_device_bytes, 0);
  put_sum(writer, row->before.allocated_bytes, row->recorded);
  put_sum(writer, row->before.reserved_bytes, cache);
  put_sum(writer, row->end.requested_bytes, cache);
  put_sum(writer, row->end.allocated_bytes, row->recorded);
  put_sum(writer, row->end.active_bytes, row->recorded);
  put_sum(writer, row->end.reserved_bytes, cache);
  put_sum(writer, row->end_free.largest_bytes, cache);
  put_sum(writer, row->end_free.inactive_split_bytes, cache);
  put_known(writer, row->checked, -1);
  int r = row_end(writer, error);
  if (r < 0 || row->recorded_step == (uint64_t)row->step)
    return r;
  row_begin(writer, INSERT_renumbered_step);
  put_int(writer, writer->rank);
  put_int(writer, row->step);
  put_int(writer, (int64_t)row->recorded_step);
  return row_end(writer, error);
}

int sl_write_phase(struct sl_ledger_writer *writer, const struct sl_phase *phase, struct sl_error *error) {
  row_begin(writer, INSERT_phase);
  put_int(writer, id_of(writer, phase->id));
  put_int(writer, writer->rank);
  put_int(writer, phase->tid);
  put_text(writer, sl_kind_name(phase->kind));
  put_text(writer, phase->name);
  put_id(writer, sl_phase_module(phase));
  put_known(writer, phase->step, -1);
  put_int(writer, phase->call_index);
  put_int(writer, (int64_t)phase->start_ns);
  put_known(writer, (int64_t)phase->end_ns, 0);
  put_id(writer, phase->parent ? phase->parent->id : 0);
  return row_end(writer, error);
}

int sl_write_allocation(struct sl_ledger_writer *writer, const struct sl_allocation *allocation, uint64_t stream,
                        const char *pool, const char *category, struct sl_error *error) {
  row_begin(writer, INSERT_allocation);
  put_int(writer, id_of(writer, allocation->id));
  put_int(writer, writer->rank);
  put_int(writer, allocation->device);
  put_int(writer, (int64_t)allocation->address);
  put_int(writer, (int64_t)allocation->bytes);
  put_int(writer, (int64_t)allocation->requested_bytes);
  put_int(writer, (int64_t)stream);
  put_word(writer, pool);
  put_text(writer, category);
  put_word(writer, sl_rules[allocation->rule].detail);
  put_word(writer, allocation->tag_name);
  put_id(writer, allocation->module);
  put_id(writer, allocation->phase_id);
  put_known(writer, allocation->step, -1);
  put_int(writer, allocation->tid);
  put_int(writer, (int64_t)allocation->alloc_ns);
  put_known(writer, (int64_t)allocation->free_ns, 0);
  put_known(writer, (int64_t)allocation->complete_ns, 0);
  put_id(writer, allocation->free_phase_id);
  put_text(writer, sl_rules[allocation->rule].name);
  put_known(writer, allocation->last_step, -1);
  return row_end(writer, error);
}

int sl_write_segment(struct sl_ledger_writer *writer, uint32_t device, uint64_t address, uint64_t bytes,
                     const char *owner, const char *api, uint64_t stream, uint64_t alloc_ns, uint64_t free_ns,
                     const struct sl_segment_place *place, struct sl_error *error) {
  row_begin(writer, INSERT_segment);
  put_next_id(writer);
  put_int(writer, writer->rank);
  put_int(writer, device);
  put_int(writer, (int64_t)address);
  put_int(writer, (int64_t)bytes);
  put_text(writer, owner);
  put_text(writer, api);
  put_int(writer, (int64_t)stream);
  put_int(writer, (int64_t)alloc_ns);
  put_known(writer, (int64_t)free_ns, 0);
  put_place(writer, place);
  return row_end(writer, error);
}

int sl_write_host_segment(struct sl_ledger_writer *writer, uint64_t address, uint64_t bytes, const char *owner,
                          const char *api, uint64_t alloc_ns, uint64_t free_ns, const struct sl_segment_place *place,
                          struct sl_error *error) {
  row_begin(writer, INSERT_host_segment);
  put_next_id(writer);
  put_int(writer, writer->rank);
  put_int(writer, (int64_t)address);
  put_int(writer, (int64_t)bytes);
  put_text(writer, owner);
  put_text(writer, api);
  put_int(writer, (int64_t)alloc_ns);
  put_known(writer, (int64_t)free_ns, 0);
  put_place(writer, place);
  return row_end(writer, error);
}

int sl_write_gpu_code(struct sl_ledger_writer *writer, uint32_t device, uint64_t at_ns, bool loaded,
                      uint64_t image_bytes, const struct sl_segment_place *place, struct sl_error *error) {
  row_begin(writer, INSERT_gpu_code);
  put_int(writer, writer->rank);
  put_int(writer, device);
  put_int(writer, (int64_t)at_ns);
  put_int(writer, loaded);
  put_int(writer, (int64_t)image_bytes);
  put_place(writer, place);
  return row_end(writer, error);
}

int sl_write_context(struct sl_ledger_writer *writer, uint32_t device, uint32_t context, uint64_t at_ns, bool created,
                     struct sl_error *error) {
  row_begin(writer, INSERT_context);
  put_int(writer, writer->rank);
  put_int(writer, device);
  put_int(writer, context);
  put_int(writer, (int64_t)at_ns);
  put_int(writer, created);
  return row_end(writer, error);
}

int sl_write_snapshot(struct sl_ledger_writer *writer, int64_t step, uint32_t module, uint32_t call_index,
                      enum sl_state state, uint64_t at_ns, const char *category, uint64_t bytes, uint64_t tracker_bytes,
                      struct sl_error *error) {
  row_begin(writer, INSERT_snapshot);
  put_int(writer, writer->rank);
  put_int(writer, step);
  put_int(writer, id_of(writer, module));
  put_int(writer, call_index);
  put_text(writer, sl_state_name(state));
  put_int(writer, (int64_t)at_ns);
  put_text(writer, category);
  put_int(writer, (int64_t)bytes);
  put_int(writer, (int64_t)tracker_bytes);
  return row_end(writer, error);
}

int sl_write_peak(struct sl_ledger_writer *writer, int64_t step, uint32_t module, const char *phase, uint64_t at_ns,
                  uint64_t allocated_bytes, const struct sl_own_bytes *own, struct sl_error *error) {
  row_begin(writer, INSERT_peak);
  put_int(writer, writer->rank);
  put_int(writer, step);
  put_id(writer, module);
  put_text(writer, phase);
  put_int(writer, (int64_t)at_ns);
  put_int(writer, (int64_t)allocated_bytes);
  if (module) {
    put_int(writer, (int64_t)own->alone);
    put_int(writer, (int64_t)own->with_children);
  } else {
    put_null(writer);
    put_null(writer);
  }
  return row_end(writer, error);
}

int sl_write_peak_category(struct sl_ledger_writer *writer, int64_t step, uint32_t module, const char *phase,
                           const char *category, uint64_t bytes, struct sl_error *error) {
  if (writer->listener.step_category && !module && strcmp(phase, sl_kind_name(SL_KIND_step)) == 0)
    writer->listener.step_category(writer->listener.context, category, bytes);
  row_begin(writer, INSERT_peak_category);
  put_int(writer, writer->rank);
  put_int(writer, step);
  put_id(writer, module);
  put_text(writer, phase);
  put_text(writer, category);
  put_int(writer, (int64_t)bytes);
  return row_end(writer, error);
}

int sl_write_peak_owner(struct sl_ledger_writer *writer, int64_t step, const char *category, const char *detail,
                        uint32_t module, const char *phase, uint64_t bytes, uint64_t allocations,
                        struct sl_error *error) {
  row_begin(writer, INSERT_peak_owner);
  put_int(writer, writer->rank);
  put_int(writer, step);
  put_text(writer, category);
  put_word(writer, detail);
  put_id(writer, module);
  put_word(writer, phase);
  put_int(writer, (int64_t)bytes);
  put_int(writer, (int64_t)allocations);
  return row_end(writer, error);
}

int sl_write_device_sample(struct sl_ledger_writer *writer, uint32_t device, uint64_t at_ns, uint64_t total_bytes,
                           uint64_t used_bytes, int64_t own_bytes, int64_t other_bytes, struct sl_error *error) {
  row_begin(writer, INSERT_device_sample);
  put_int(writer, writer->rank);
  put_int(writer, device);
  put_int(writer, (int64_t)at_ns);
  put_int(writer, (int64_t)total_bytes);
  put_int(writer, (int64_t)used_bytes);
  put_known(writer, own_bytes, -1);
  put_known(writer, other_bytes, -1);
  return row_end(writer, error);
}

int sl_write_device_owner(struct sl_ledger_writer *writer, uint32_t device, uint64_t at_ns, const char *owner,
                          int64_t bytes, struct sl_error *error) {
  row_begin(writer, INSERT_device_owner);
  put_int(writer, writer->rank);
  put_int(writer, device);
  put_int(writer, (int64_t)at_ns);
  put_text(writer, owner);
  put_int(writer, bytes);
  return row_end(writer, error);
}

int sl_write_oom(struct sl_ledger_writer *writer, uint64_t at_ns, uint32_t device, const char *source,
                 const struct sl_oom_row *row, struct sl_error *error) {
  const bool cache = row->recorded && !row->drivers_pool;
  row_begin(writer, INSERT_oom);
  put_int(writer, writer->rank);
  put_int(writer, (int64_t)at_ns);
  put_int(writer, (int64_t)row->requested_bytes);
  put_known(writer, row->free_bytes, -1);
  put_sum(writer, row->totals.allocated_bytes, row->recorded);
  put_sum(writer, row->totals.reserved_bytes, cache);
  put_sum(writer, row->free_blocks.largest_bytes, cache);
  put_int(writer, device);
  put_text(writer, source);
  put_sum(writer, row->totals.active_bytes, row->recorded);
  put_sum(writer, row->free_blocks.inactive_split_bytes, cache);
  put_place(writer, &row->place);
  return row_end(writer, error);
}

int sl_write_oom_owner(struct sl_ledger_writer *writer, uint64_t at_ns, const char *category, const char *detail,
                       uint32_t module, const char *phase, uint64_t bytes, uint64_t allocations,
                       struct sl_error *error) {
  row_begin(writer, INSERT_oom_owner);
  put_int(writer, writer->rank);
  put_int(writer, (int64_t)at_ns);
  put_text(writer, category);
  put_word(writer, detail);
  put_id(writer, module);
  put_word(writer, phase);
  put_int(writer, (int64_t)bytes);
  put_int(writer, (int64_t)allocations);
  return row_end(writer, error);
}

int sl_write_collective(struct sl_ledger_writer *writer, const struct sl_collective_row *row, struct sl_error *error) {
  if (writer->listener.collective)
    writer->listener.collective(writer->listener.context, row);
  return writer->sink ? writer->sink(writer->sink_context, row, error) : sl_write_collective_row(writer, row, error);
}

int sl_write_collective_total(struct sl_ledger_writer *writer, const struct sl_collective_total_row *row,
                              struct sl_error *error) {
  if (sl_rank_sums_collective(&writer->sums, row) < 0)
    return sl_no_memory(error);
  row_begin(writer, INSERT_collective_total);
  put_int(writer, writer->rank);
  put_int(writer, row->step);
  put_int(writer, row->before);
  if (row->has_comm)
    put_int(writer, (int64_t)row->comm);
  else
    put_null(writer);
  put_text(writer, row->operation);
  put_int(writer, (int64_t)row->calls);
  put_int(writer, (int64_t)row->bytes);
  put_int(writer, (int64_t)row->timed);
  put_int(writer, (int64_t)row->duration_ns);
  put_sum(writer, row->min_duration_ns, row->timed);
  put_sum(writer, row->max_duration_ns, row->timed);
  put_int(writer, row->delay_ns);
  return row_end(writer, error);
}

static int write_rank_steps(struct sl_ledger_writer *writer, struct sl_error *error) {
  const struct sl_rank_sums *sums = &writer->sums;
  row_begin(writer, INSERT_rank_steps);
  put_int(writer, writer->rank);
  put_int(writer, (int64_t)sums->steps);
  put_int(writer, (int64_t)sums->steps_in_full);
  put_int(writer, (int64_t)sums->steps_agreed);
  put_int(writer, (int64_t)sums->steps_differed);
  put_int(writer, sums->first_step);
  put_int(writer, sums->last_step);
  return row_end(writer, error);
}

int sl_write_rank_sums(struct sl_ledger_writer *writer, struct sl_error *error) {
  int r = writer->sums.steps ? write_rank_steps(writer, error) : 0;
  for (size_t i = 0; r == 0 && i < writer->sums.collective_count; i++) {
    const struct sl_collective_total_row *sum = &writer->sums.collectives[i];
    row_begin(writer, INSERT_rank_collectives);
    put_int(writer, writer->rank);
    if (sum->has_comm)
      put_int(writer, (int64_t)sum->comm);
    else
      put_null(writer);
    put_text(writer, sum->operation);
    put_int(writer, (int64_t)sum->calls);
    put_int(writer, (int64_t)sum->bytes);
    put_int(writer, (int64_t)sum->timed);
    put_int(writer, (int64_t)sum->duration_ns);
    r = row_end(writer, error);
  }
  return r;
}

int sl_write_collective_row(struct sl_ledger_writer *writer, const struct sl_collective_row *row,
                            struct sl_error *error) {
  row_begin(writer, INSERT_collective);
  put_int(writer, id_of(writer, row->id));
  put_int(writer, writer->rank);
  if (row->has_comm)
    put_int(writer, (int64_t)row->comm);
  else
    put_null(writer);
  put_known(writer, row->seq, -1);
  put_text(writer, row->operation);
  if (row->has_bytes)
    put_int(writer, (int64_t)row->bytes);
  else
    put_null(writer);
  put_word(writer, row->reduction);
  put_known(writer, row->root, -1);
  put_known(writer, row->peer, -1);
  put_id(writer, row->module);
  put_known(writer, row->step, -1);
  put_id(writer, row->phase);
  put_int(writer, row->tid);
  put_int(writer, (int64_t)row->enqueue_ns);
  put_known(writer, (int64_t)row->start_ns, 0);
  put_known(writer, (int64_t)row->end_ns, 0);
  if (row->joined_by)
    put_int(writer, row->stream);
  else
    put_null(writer);
  put_id(writer, row->send_allocation);
  put_id(writer, row->receive_allocation);
  put_word(writer, row->datatype);
  put_word(writer, row->algorithm);
  put_word(writer, row->protocol);
  put_known(writer, row->channels, 0);
  put_known(writer, row->kernel_calls, 0);
  put_word(writer, row->joined_by);
  put_word(writer, row->untimed);
  return row_end(writer, error);
}

int sl_write_communicator(struct sl_ledger_writer *writer, uint64_t comm, int64_t ranks, int64_t rank, const char *name,
                          uint64_t device_bytes, uint64_t start_ns, uint64_t end_ns, struct sl_error *error) {
  row_begin(writer, INSERT_communicator);
  put_int(writer, writer->rank);
  put_int(writer, (int64_t)comm);
  put_known(writer, ranks, -1);
  put_known(writer, rank, -1);
  put_word(writer, name);
  put_int(writer, (int64_t)device_bytes);
  put_known(writer, (int64_t)start_ns, 0);
  put_known(writer, (int64_t)end_ns, 0);
  return row_end(writer, error);
}

int sl_write_source(struct sl_ledger_writer *writer, const char *source, const char *state, const char *reason,
                    uint64_t at_ns, struct sl_error *error) {
  row_begin(writer, INSERT_source);
  put_int(writer, writer->rank);
  put_text(writer, source);
  put_text(writer, state);
  put_text(writer, reason);
  put_int(writer, (int64_t)at_ns);
  return row_end(writer, error);
}

int sl_write_kernel(struct sl_ledger_writer *writer, const void *payload, const char *name, struct sl_error *error) {
  const struct sl_event_kernel *kernel = payload;
  writer->computes = writer->computes || !strstr(name, "nccl");
  row_begin(writer, INSERT_kernel);
  put_int(writer, writer->rank);
  put_int(writer, kernel->device);
  put_int(writer, kernel->stream);
  put_text(writer, name);
  put_int(writer, kernel->correlation);
  put_int(writer, (int64_t)kernel->start_ns);
  put_int(writer, (int64_t)kernel->end_ns);
  return row_end(writer, error);
}

int sl_write_memcpy(struct sl_ledger_writer *writer, const void *payload, struct sl_error *error) {
  const struct sl_event_memory_copy *copy = payload;
  row_begin(writer, INSERT_memcpy);
  put_int(writer, writer->rank);
  put_int(writer, copy->device);
  put_int(writer, copy->stream);
  put_int(writer, copy->kind);
  put_int(writer, (int64_t)copy->bytes);
  put_int(writer, copy->correlation);
  put_int(writer, (int64_t)copy->start_ns);
  put_int(writer, (int64_t)copy->end_ns);
  return row_end(writer, error);
}

int sl_write_memset(struct sl_ledger_writer *writer, const void *payload, struct sl_error *error) {
  const struct sl_event_memory_set *set = payload;
  row_begin(writer, INSERT_memset);
  put_int(writer, writer->rank);
  put_int(writer, set->device);
  put_int(writer, set->stream);
  put_int(writer, (int64_t)set->bytes);
  put_int(writer, set->correlation);
  put_int(writer, (int64_t)set->start_ns);
  put_int(writer, (int64_t)set->end_ns);
  return row_end(writer, error);
}
