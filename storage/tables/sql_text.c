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
SL_SQL_TEXT(sl_tape_calls_sql, SL_SQL_DIRECTORY "/predict/tape_calls.sql");
SL_SQL_TEXT(sl_tape_reshards_sql, SL_SQL_DIRECTORY "/predict/tape_reshards.sql");
SL_SQL_TEXT(sl_tape_marks_sql, SL_SQL_DIRECTORY "/predict/tape_marks.sql");
SL_SQL_TEXT(sl_shards_parameters_sql, SL_SQL_DIRECTORY "/predict/shards_parameters.sql");
SL_SQL_TEXT(sl_shards_units_sql, SL_SQL_DIRECTORY "/predict/shards_units.sql");
SL_SQL_TEXT(sl_shards_groups_sql, SL_SQL_DIRECTORY "/predict/shards_groups.sql");
SL_SQL_TEXT(sl_shards_device_sql, SL_SQL_DIRECTORY "/predict/shards_device.sql");
