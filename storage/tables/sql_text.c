/* SL_SQL_DIRECTORY is storage/; the build reassembles when an SQL file changes. */
#include "sql_text.h"
#include "sql_embed.h"

SL_SQL_TEXT(sl_indexes_sql, SL_SQL_DIRECTORY "/tables/indexes.sql");
SL_SQL_TEXT(sl_meetings_sql, SL_SQL_DIRECTORY "/tables/meetings.sql");
SL_SQL_TEXT(sl_views_sql, SL_SQL_DIRECTORY "/tables/views.sql");
SL_SQL_TEXT(sl_rank_periods_sql, SL_SQL_DIRECTORY "/run/rank_periods.sql");
SL_SQL_TEXT(sl_rank_peak_parts_sql, SL_SQL_DIRECTORY "/run/rank_peak_parts.sql");
SL_SQL_TEXT(sl_rank_owner_peak_sql, SL_SQL_DIRECTORY "/run/rank_owner_peak.sql");
SL_SQL_TEXT(sl_rank_owner_growth_sql, SL_SQL_DIRECTORY "/run/rank_owner_growth.sql");
SL_SQL_TEXT(sl_rank_group_is_sql, SL_SQL_DIRECTORY "/run/rank_group_is.sql");
SL_SQL_TEXT(sl_tape_rank_sql, SL_SQL_DIRECTORY "/predict/tape_rank.sql");
SL_SQL_TEXT(sl_tape_periods_sql, SL_SQL_DIRECTORY "/predict/tape_periods.sql");
SL_SQL_TEXT(sl_tape_allocations_sql, SL_SQL_DIRECTORY "/predict/tape_allocations.sql");
SL_SQL_TEXT(sl_tape_segments_sql, SL_SQL_DIRECTORY "/predict/tape_segments.sql");
SL_SQL_TEXT(sl_tape_outside_sql, SL_SQL_DIRECTORY "/predict/tape_outside.sql");
SL_SQL_TEXT(sl_tape_optimizer_steps_sql, SL_SQL_DIRECTORY "/predict/tape_optimizer_steps.sql");
SL_SQL_TEXT(sl_advise_held_sql, SL_SQL_DIRECTORY "/advise/held.sql");
SL_SQL_TEXT(sl_advise_goal_refused_sql, SL_SQL_DIRECTORY "/advise/goal_refused.sql");
SL_SQL_TEXT(sl_advise_goal_outside_sql, SL_SQL_DIRECTORY "/advise/goal_outside.sql");
SL_SQL_TEXT(sl_advise_goal_peak_sql, SL_SQL_DIRECTORY "/advise/goal_peak.sql");
SL_SQL_TEXT(sl_advise_parameters_sql, SL_SQL_DIRECTORY "/advise/parameters.sql");
SL_SQL_TEXT(sl_advise_price_forward_sql, SL_SQL_DIRECTORY "/advise/price_forward.sql");
SL_SQL_TEXT(sl_advise_price_collectives_sql, SL_SQL_DIRECTORY "/advise/price_collectives.sql");
SL_SQL_TEXT(sl_advise_price_copies_sql, SL_SQL_DIRECTORY "/advise/price_copies.sql");
SL_SQL_TEXT(sl_advise_fact_batch_sql, SL_SQL_DIRECTORY "/advise/facts/batch.sql");
SL_SQL_TEXT(sl_advise_fact_expandable_segments_sql, SL_SQL_DIRECTORY "/advise/facts/expandable_segments.sql");
SL_SQL_TEXT(sl_advise_fact_gradient_sync_sql, SL_SQL_DIRECTORY "/advise/facts/gradient_sync.sql");
SL_SQL_TEXT(sl_advise_fact_kept_outputs_sql, SL_SQL_DIRECTORY "/advise/facts/kept_outputs.sql");
SL_SQL_TEXT(sl_advise_fact_leak_sql, SL_SQL_DIRECTORY "/advise/facts/leak.sql");
SL_SQL_TEXT(sl_advise_fact_loss_sql, SL_SQL_DIRECTORY "/advise/facts/loss.sql");
SL_SQL_TEXT(sl_advise_fact_offload_optimizer_sql, SL_SQL_DIRECTORY "/advise/facts/offload_optimizer.sql");
SL_SQL_TEXT(sl_advise_fact_optimizer_in_backward_sql, SL_SQL_DIRECTORY "/advise/facts/optimizer_in_backward.sql");
SL_SQL_TEXT(sl_advise_fact_optimizer_temporaries_sql, SL_SQL_DIRECTORY "/advise/facts/optimizer_temporaries.sql");
SL_SQL_TEXT(sl_advise_fact_other_processes_sql, SL_SQL_DIRECTORY "/advise/facts/other_processes.sql");
SL_SQL_TEXT(sl_advise_fact_recompute_sql, SL_SQL_DIRECTORY "/advise/facts/recompute.sql");
SL_SQL_TEXT(sl_advise_fact_reshard_sql, SL_SQL_DIRECTORY "/advise/facts/reshard.sql");
SL_SQL_TEXT(sl_tape_calls_sql, SL_SQL_DIRECTORY "/predict/tape_calls.sql");
SL_SQL_TEXT(sl_tape_entries_sql, SL_SQL_DIRECTORY "/predict/tape_entries.sql");
SL_SQL_TEXT(sl_tape_recomputes_sql, SL_SQL_DIRECTORY "/predict/tape_recomputes.sql");
SL_SQL_TEXT(sl_tape_uses_sql, SL_SQL_DIRECTORY "/predict/tape_uses.sql");
SL_SQL_TEXT(sl_tape_reshards_sql, SL_SQL_DIRECTORY "/predict/tape_reshards.sql");
SL_SQL_TEXT(sl_tape_marks_sql, SL_SQL_DIRECTORY "/predict/tape_marks.sql");
SL_SQL_TEXT(sl_shards_parameters_sql, SL_SQL_DIRECTORY "/predict/shards_parameters.sql");
SL_SQL_TEXT(sl_shards_units_sql, SL_SQL_DIRECTORY "/predict/shards_units.sql");
SL_SQL_TEXT(sl_shards_groups_sql, SL_SQL_DIRECTORY "/predict/shards_groups.sql");
SL_SQL_TEXT(sl_shards_device_sql, SL_SQL_DIRECTORY "/predict/shards_device.sql");
