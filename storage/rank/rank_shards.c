/* How parameters are laid out, and what optimizers step them: definitions that the companion writes (shards.py). */
#include "rank_builder.h"
#include "storage/tables/ledger_tables.h"

static int parameter_write(struct sl_rank_builder *b, const struct sl_event_parameter *event) {
  const struct sl_parameter_cells cells = {
      .parameter = event->id,
      .module_id = event->module,
      .name = sl_log_string(b->log, event->name),
      .shape = sl_log_string(b->log, event->shape),
      .dtype = sl_log_string(b->log, event->dtype),
      .local_shape = sl_log_string(b->log, event->local_shape),
      .placement = sl_log_string(b->log, event->placement),
      .is_trained = (event->flags & SL_PARAMETER_TRAINED) != 0,
      .is_offloaded = (event->flags & SL_PARAMETER_OFFLOADED) != 0,
      .unit_id = event->unit,
      .place = event->unit ? event->place : SL_NONE,
  };
  return sl_put_parameter(b->writer, &cells, b->error);
}

static int unit_write(struct sl_rank_builder *b, const struct sl_event_fsdp_unit *event) {
  const struct sl_fsdp_unit_cells cells = {
      .module_id = event->module,
      .shard_ranks = event->shard_ranks,
      .replicas = event->replicas,
      .reshard_ranks = event->reshard_ranks,
      .param_dtype = sl_log_string(b->log, event->param_dtype),
      .reduce_dtype = sl_log_string(b->log, event->reduce_dtype),
      .groups = event->groups,
      .is_offloaded = (event->flags & SL_UNIT_OFFLOADED) != 0,
  };
  return sl_put_fsdp_unit(b->writer, &cells, b->error);
}

static int optimizer_write(struct sl_rank_builder *b, const struct sl_event_optimizer *event) {
  const struct sl_optimizer_cells cells = {
      .optimizer = event->id,
      .group_number = event->group,
      .class = sl_log_string(b->log, event->class_name),
      .settings = sl_log_string(b->log, event->settings),
      .parameters = sl_log_string(b->log, event->parameters),
      .count = event->count,
  };
  return sl_put_optimizer(b->writer, &cells, b->error);
}

int sl_rank_on_shards(struct sl_rank_builder *b, const struct sl_event *event) {
  switch (event->type) {
  case SL_EVENT_parameter: return parameter_write(b, event->payload);
  case SL_EVENT_fsdp_unit: return unit_write(b, event->payload);
  default: return optimizer_write(b, event->payload);
  }
}
