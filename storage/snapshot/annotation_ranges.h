/*
 * A snapshot's annotations as ranges. PyTorch tells that a range of some name starts or ends, not on which thread: an
 * end closes the latest open range of its name, and ranges that do not lie within one another are of different threads.
 */
#ifndef SHARDLEDGER_ANNOTATION_RANGES_H
#define SHARDLEDGER_ANNOTATION_RANGES_H

#include "snapshot.h"

/*
 * For each annotation of the snapshot the thread of its range: 1, 2, …, so that those of one nest; 0: left out, because
 * it is an end without its start. *out belongs to the caller; NULL where there are no annotations. *threads: how many.
 * 0 or -ENOMEM.
 */
int sl_annotation_ranges_find(const struct sl_snapshot *snapshot, uint32_t **out, uint32_t *threads);

#endif
