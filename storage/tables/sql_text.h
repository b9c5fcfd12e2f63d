/* The SQL files of storage/, linked into the program. NUL-terminated. */
#ifndef SHARDLEDGER_SQL_TEXT_H
#define SHARDLEDGER_SQL_TEXT_H

extern const char sl_indexes_sql[];  /* indexes.sql */
extern const char sl_meetings_sql[]; /* meetings.sql */
extern const char sl_views_sql[];    /* views.sql */

/* Those of run/, each with its own file name. */
extern const char sl_rank_periods_sql[];
extern const char sl_rank_peak_parts_sql[];
extern const char sl_rank_owner_peak_sql[];
extern const char sl_rank_owner_growth_sql[];
extern const char sl_rank_group_is_sql[];

/* And of predict/. */
extern const char sl_tape_rank_sql[];
extern const char sl_tape_periods_sql[];
extern const char sl_tape_allocations_sql[];
extern const char sl_tape_segments_sql[];
extern const char sl_tape_outside_sql[];
extern const char sl_tape_optimizer_steps_sql[];
extern const char sl_tape_calls_sql[];
extern const char sl_tape_entries_sql[];
extern const char sl_tape_recomputes_sql[];
extern const char sl_tape_uses_sql[];
extern const char sl_tape_reshards_sql[];
extern const char sl_tape_marks_sql[];
extern const char sl_shards_parameters_sql[];
extern const char sl_shards_units_sql[];
extern const char sl_shards_groups_sql[];
extern const char sl_shards_device_sql[];

/* And of advise/, and of advise/facts/. */
extern const char sl_advise_held_sql[];
extern const char sl_advise_goal_refused_sql[];
extern const char sl_advise_goal_outside_sql[];
extern const char sl_advise_goal_peak_sql[];
extern const char sl_advise_parameters_sql[];
extern const char sl_advise_price_forward_sql[];
extern const char sl_advise_price_collectives_sql[];
extern const char sl_advise_price_copies_sql[];
extern const char sl_advise_verdict_sql[];
extern const char sl_advise_fact_batch_sql[];
extern const char sl_advise_fact_expandable_segments_sql[];
extern const char sl_advise_fact_gradient_sync_sql[];
extern const char sl_advise_fact_kept_outputs_sql[];
extern const char sl_advise_fact_leak_sql[];
extern const char sl_advise_fact_loss_sql[];
extern const char sl_advise_fact_offload_optimizer_sql[];
extern const char sl_advise_fact_optimizer_in_backward_sql[];
extern const char sl_advise_fact_optimizer_temporaries_sql[];
extern const char sl_advise_fact_other_processes_sql[];
extern const char sl_advise_fact_recompute_sql[];
extern const char sl_advise_fact_reshard_sql[];

#endif
