/* What other parts of storage/ know, as rows: the tables whose rows come from structs that live longer than the row. */
#include "ledger_cells.h"
#include "plugin/format/events.h"
#include "storage/attribution/attribution.h"

#include <string.h>

static int64_t sum_or_none(uint64_t bytes, bool known) {
  return known ? (int64_t)bytes : SL_NONE;
}

static int64_t time_or_none(uint64_t ns) {
  return sl_known((int64_t)ns, 0);
}

int sl_write_module(struct sl_ledger_writer *writer, const struct sl_module_info *module, struct sl_error *error) {
  const struct sl_module_cells cells = {
      .id = module->id,
      .fqn = module->fqn,
      .class = module->class_name,
      .parent_id = module->parent,
      .root_id = module->root,
      .depth = module->depth,
      .is_fsdp = (module->flags & SL_MODULE_FSDP) != 0,
      .wraps = module->flags & SL_MODULE_RECOMPUTE ? "_checkpoint_wrapped_module"
               : module->flags & SL_MODULE_DDP     ? "module"
                                                   : NULL,
      .param_bytes = (int64_t)module->parameter_bytes,
      .buffer_bytes = (int64_t)module->buffer_bytes,
  };
  return sl_put_module(writer, &cells, error);
}

const char *sl_period_word(enum sl_period_kind kind) {
  static const char *const words[] = {"setup", "step", "between", "end", "whole", "cut"};
  return words[kind];
}

int sl_write_period(struct sl_ledger_writer *writer, const struct sl_period_row *row, struct sl_error *error) {
  if (writer->listener.period)
    writer->listener.period(writer->listener.context, row);
  sl_rank_sums_period(&writer->sums, row);
  const bool recorded = row->recorded, cache = recorded && !row->drivers_pool;
  const struct sl_period_cells cells = {
      .period = (int64_t)row->period,
      .kind = sl_period_word(row->kind),
      .step = sl_known(row->step, -1),
      .name = row->name,
      .same_as = sl_known(row->same_as, -1),
      .start_ns = (int64_t)row->start_ns,
      .end_ns = (int64_t)row->end_ns,
      .peak_ns = recorded ? time_or_none(row->peak_ns) : SL_NONE,
      .peak_phase_id = row->peak_phase,
      .peak_module_id = row->peak_module,
      .peak_requested_bytes = sum_or_none(row->peak.requested_bytes, cache),
      .peak_allocated_bytes = sum_or_none(row->peak.allocated_bytes, recorded),
      .peak_active_bytes = sum_or_none(row->peak.active_bytes, recorded),
      .peak_reserved_bytes = sum_or_none(row->peak.reserved_bytes, cache),
      .peak_device_bytes = sl_known((int64_t)row->peak_device_bytes, 0),
      .end_requested_bytes = sum_or_none(row->end.requested_bytes, cache),
      .end_allocated_bytes = sum_or_none(row->end.allocated_bytes, recorded),
      .end_active_bytes = sum_or_none(row->end.active_bytes, recorded),
      .end_reserved_bytes = sum_or_none(row->end.reserved_bytes, cache),
      .end_largest_free_bytes = sum_or_none(row->end_free.largest_bytes, cache),
      .end_inactive_split_bytes = sum_or_none(row->end_free.inactive_split_bytes, cache),
      .checked = sl_known(row->checked, -1),
      .first_allocator_event = sum_or_none(row->first_allocator_event, cache),
  };
  int r = sl_put_period(writer, &cells, error);
  if (r < 0 || row->kind != SL_PERIOD_step || row->recorded_step == (uint64_t)row->step)
    return r;
  const struct sl_renumbered_step_cells renumbered = {.step = row->step, .recorded = (int64_t)row->recorded_step};
  return sl_put_renumbered_step(writer, &renumbered, error);
}

int sl_write_phase(struct sl_ledger_writer *writer, struct sl_rows *to, const struct sl_phase *phase,
                   struct sl_error *error) {
  const struct sl_phase_cells cells = {
      .id = phase->id,
      .tid = phase->tid,
      .kind = sl_kind_name(phase->kind),
      .name = phase->name,
      .module_id = sl_phase_module(phase),
      .step = sl_known(phase->step, -1),
      .call_index = phase->call_index,
      .start_ns = (int64_t)phase->start_ns,
      .end_ns = time_or_none(phase->end_ns),
      .parent_id = phase->parent ? phase->parent->id : 0,
  };
  return sl_put_phase_to(writer, to, &cells, error);
}

/* No row where nothing is known. */
static int allocation_use_write(struct sl_ledger_writer *writer, struct sl_rows *to,
                                const struct sl_allocation *allocation, struct sl_error *error) {
  const struct sl_allocation_uses *uses = &allocation->uses;
  if (!uses->first_ns && !uses->hidden_first_ns && !uses->has_unused_step)
    return 0;
  const struct sl_allocation_use_cells cells = {
      .allocation_id = allocation->id,
      .first_use_ns = time_or_none(uses->first_ns),
      .last_use_ns = time_or_none(uses->last_ns),
      .last_use_site_id = uses->last_site,
      .forward_use_ns = time_or_none(uses->forward_ns),
      .use_step = uses->has_unused_step ? uses->unused_step : SL_NONE,
      .hidden_first_ns = time_or_none(uses->hidden_first_ns),
      .hidden_last_ns = time_or_none(uses->hidden_last_ns),
  };
  return sl_put_allocation_use_to(writer, to, &cells, error);
}

int sl_write_allocation(struct sl_ledger_writer *writer, struct sl_rows *to, const struct sl_allocation *allocation,
                        uint64_t stream, const char *pool, const char *category, struct sl_error *error) {
  const struct sl_allocation_cells cells = {
      .id = allocation->id,
      .device = allocation->device,
      .address = (int64_t)allocation->address,
      .bytes = (int64_t)allocation->bytes,
      .requested_bytes = (int64_t)allocation->requested_bytes,
      .stream = (int64_t)stream,
      .pool = pool,
      .category = category,
      .detail = sl_rules[allocation->rule].detail,
      .name = allocation->tag_name,
      .module_id = allocation->module,
      .phase_id = allocation->phase_id,
      .period = (int64_t)allocation->period,
      .step = sl_known(allocation->step, -1),
      .tid = allocation->tid,
      .alloc_ns = (int64_t)allocation->alloc_ns,
      .free_ns = time_or_none(allocation->free_ns),
      .complete_ns = time_or_none(allocation->complete_ns),
      .free_phase_id = allocation->free_phase_id,
      .decided_by = sl_rules[allocation->rule].name,
      .last_step = sl_known(allocation->last_step, -1),
      .note = allocation->note,
      .site_id = allocation->site,
      .site_step = allocation->site ? sl_known(allocation->site_step, -1) : SL_NONE,
      .alloc_event = sl_known((int64_t)allocation->alloc_event, 0),
      .free_event = sl_known((int64_t)allocation->free_event, 0),
      .complete_event = sl_known((int64_t)allocation->complete_event, 0),
  };
  int r = sl_put_allocation_to(writer, to, &cells, error);
  return r < 0 ? r : allocation_use_write(writer, to, allocation, error);
}

int sl_write_peak_category(struct sl_ledger_writer *writer, struct sl_rows *to,
                           const struct sl_peak_category_cells *cells, bool of_period, struct sl_error *error) {
  if (writer->listener.period_category && of_period)
    writer->listener.period_category(writer->listener.context, cells->category, (uint64_t)cells->bytes);
  return sl_put_peak_category_to(writer, to, cells, error);
}

int sl_write_oom(struct sl_ledger_writer *writer, uint64_t at_ns, uint32_t device, const char *source,
                 const struct sl_oom_row *row, struct sl_error *error) {
  const bool cache = row->recorded && !row->drivers_pool;
  const struct sl_oom_cells cells = {
      .at_ns = (int64_t)at_ns,
      .requested_bytes = (int64_t)row->requested_bytes,
      .free_bytes = sl_known(row->free_bytes, -1),
      .allocated_bytes = sum_or_none(row->totals.allocated_bytes, row->recorded),
      .reserved_bytes = sum_or_none(row->totals.reserved_bytes, cache),
      .largest_free_bytes = sum_or_none(row->free_blocks.largest_bytes, cache),
      .device = device,
      .source = source,
      .active_bytes = sum_or_none(row->totals.active_bytes, row->recorded),
      .inactive_split_bytes = sum_or_none(row->free_blocks.inactive_split_bytes, cache),
      .phase_id = row->place.phase,
      .module_id = row->place.module,
      .step = sl_known(row->place.step, -1),
      .site_id = row->site,
  };
  return sl_put_oom(writer, &cells, error);
}

/* ---- NCCL's calls ---- */

int sl_write_collective(struct sl_ledger_writer *writer, struct sl_rows *to, const struct sl_collective_row *row,
                        struct sl_error *error) {
  if (writer->listener.collective)
    writer->listener.collective(writer->listener.context, row);
  const struct sl_collective_cells cells = {
      .id = row->id,
      .comm = sum_or_none(row->comm, row->has_comm),
      .seq = sl_known(row->seq, -1),
      .operation = row->operation,
      .bytes = sum_or_none(row->bytes, row->has_bytes),
      .reduction = row->reduction,
      .root = sl_known(row->root, -1),
      .peer = sl_known(row->peer, -1),
      .module_id = row->module,
      .step = sl_known(row->step, -1),
      .phase_id = row->phase,
      .tid = row->tid,
      .enqueue_ns = (int64_t)row->enqueue_ns,
      .start_ns = time_or_none(row->start_ns),
      .end_ns = time_or_none(row->end_ns),
      .stream = sum_or_none(row->stream, row->joined_by != NULL),
      .send_allocation_id = row->send_allocation,
      .receive_allocation_id = row->receive_allocation,
      .datatype = row->datatype,
      .algorithm = row->algorithm,
      .protocol = row->protocol,
      .channels = sl_known(row->channels, 0),
      .kernel_calls = sl_known(row->kernel_calls, 0),
      .joined_by = row->joined_by,
      .untimed = row->untimed,
  };
  return sl_put_collective_to(writer, to, &cells, error);
}

int sl_write_collective_total(struct sl_ledger_writer *writer, const struct sl_collective_total_row *row,
                              struct sl_error *error) {
  if (sl_rank_sums_collective(&writer->sums, row) < 0)
    return sl_no_memory(error);
  const struct sl_collective_total_cells cells = {
      .step = row->step,
      .before = row->before,
      .comm = sum_or_none(row->comm, row->has_comm),
      .operation = row->operation,
      .calls = (int64_t)row->calls,
      .bytes = (int64_t)row->bytes,
      .timed = (int64_t)row->timed,
      .duration_ns = (int64_t)row->duration_ns,
      .min_duration_ns = sum_or_none(row->min_duration_ns, row->timed),
      .max_duration_ns = sum_or_none(row->max_duration_ns, row->timed),
      .delay_ns = row->delay_ns,
  };
  return sl_put_collective_total(writer, &cells, error);
}

/* ---- device times ---- */

int sl_write_kernel(struct sl_ledger_writer *writer, struct sl_rows *to, const struct sl_event_kernel *kernel,
                    const char *name, struct sl_error *error) {
  writer->computes = writer->computes || !strstr(name, "nccl");
  const struct sl_kernel_cells cells = {
      .device = kernel->device,
      .stream = kernel->stream,
      .name = name,
      .correlation = kernel->correlation,
      .start_ns = (int64_t)kernel->start_ns,
      .end_ns = (int64_t)kernel->end_ns,
  };
  return sl_put_kernel_to(writer, to, &cells, error);
}

int sl_write_memcpy(struct sl_ledger_writer *writer, struct sl_rows *to, const struct sl_event_memory_copy *copy,
                    struct sl_error *error) {
  const struct sl_memcpy_cells cells = {
      .device = copy->device,
      .stream = copy->stream,
      .kind = copy->kind,
      .bytes = (int64_t)copy->bytes,
      .correlation = copy->correlation,
      .start_ns = (int64_t)copy->start_ns,
      .end_ns = (int64_t)copy->end_ns,
  };
  return sl_put_memcpy_to(writer, to, &cells, error);
}

int sl_write_memset(struct sl_ledger_writer *writer, struct sl_rows *to, const struct sl_event_memory_set *set,
                    struct sl_error *error) {
  const struct sl_memset_cells cells = {
      .device = set->device,
      .stream = set->stream,
      .bytes = (int64_t)set->bytes,
      .correlation = set->correlation,
      .start_ns = (int64_t)set->start_ns,
      .end_ns = (int64_t)set->end_ns,
  };
  return sl_put_memset_to(writer, to, &cells, error);
}

/* ---- what was summed up ---- */

int sl_write_rank_sums(struct sl_ledger_writer *writer, struct sl_error *error) {
  const struct sl_rank_sums *sums = &writer->sums;
  const struct sl_rank_steps_cells steps = {
      .steps = (int64_t)sums->steps,
      .steps_in_full = (int64_t)sums->steps_in_full,
      .steps_agreed = (int64_t)sums->steps_agreed,
      .steps_differed = (int64_t)sums->steps_differed,
      .first_step = sums->first_step,
      .last_step = sums->last_step,
  };
  const struct sl_life_cells life = {
      .periods = (int64_t)sums->periods,
      .peak_period = sums->recorded ? (int64_t)sums->peak_period : SL_NONE,
      .highest_step_period = sums->steps_recorded ? (int64_t)sums->step_period : SL_NONE,
      .peak_requested_bytes = sum_or_none(sums->peak.requested_bytes, sums->cached),
      .peak_allocated_bytes = sum_or_none(sums->peak.allocated_bytes, sums->recorded),
      .peak_active_bytes = sum_or_none(sums->peak.active_bytes, sums->recorded),
      .peak_reserved_bytes = sum_or_none(sums->peak.reserved_bytes, sums->cached),
      .peak_device_bytes = sl_known((int64_t)sums->peak_device_bytes, 0),
  };
  int r = sl_put_life(writer, &life, error);
  if (r == 0 && sums->steps)
    r = sl_put_rank_steps(writer, &steps, error);
  for (size_t i = 0; r == 0 && i < sums->collective_count; i++) {
    const struct sl_collective_total_row *sum = &sums->collectives[i];
    const struct sl_rank_collectives_cells cells = {
        .comm = sum_or_none(sum->comm, sum->has_comm),
        .operation = sum->operation,
        .calls = (int64_t)sum->calls,
        .bytes = (int64_t)sum->bytes,
        .timed = (int64_t)sum->timed,
        .duration_ns = (int64_t)sum->duration_ns,
    };
    r = sl_put_rank_collectives(writer, &cells, error);
  }
  return r;
}
