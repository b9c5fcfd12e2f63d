/* Where in the code memory was made, as arguments of torch.profiler's "[memory]" events. */
#ifndef SHARDLEDGER_KINETO_SITES_H
#define SHARDLEDGER_KINETO_SITES_H

#include "storage/error.h"
#include "storage/tables/db.h"

#include <stdint.h>

struct sl_kineto_sites;

/* db has to outlive it. NULL: no memory. */
struct sl_kineto_sites *sl_kineto_sites_new(struct sl_db *db);
struct sl_kineto_sites *sl_kineto_sites_free(struct sl_kineto_sites *sites); /* NULL is fine; returns NULL */

/*
 * What follows the other arguments of an event in its object, from a comma on; "" for a site that the ledger lacks:
 *
 *   , "Call stack": "model.py(12): Net.forward;train.py(40): main;", "Operator": "aten::mm", "Call stack of": "forward"
 *
 * The first is as torch.profiler writes it (with_stack, verbose): the innermost frame first, each with a semicolon
 * after it. The others are there where they are known, the last one where the stack is not the caller's own. *out lives
 * as long as sites.
 */
int sl_kineto_site(struct sl_kineto_sites *sites, int64_t site, const char **out, struct sl_error *error);

#endif
