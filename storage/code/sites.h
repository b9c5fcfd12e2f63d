/*
 * Sites of one rank: where in the code memory is asked for. A site is a Python call stack and an operator; a call stack
 * is its innermost frame, since each frame names its caller.
 *
 *   frame ← frame ← frame ← site ← allocation
 *   main    forward  Linear   aten::addmm
 *
 * The line of a site is that of the innermost frame of the user's own code. Where there is none (a launcher that was
 * installed, say), it is that of the innermost frame outside of PyTorch and Python, else of the innermost one.
 */
#ifndef SHARDLEDGER_SITES_H
#define SHARDLEDGER_SITES_H

#include "plugin/format/events.h"
#include "storage/error.h"
#include "storage/log/log_reader.h"

#include <stdbool.h>
#include <stdint.h>

struct sl_ledger_writer;
struct sl_sites;

/* Names stay the log's. NULL: no memory. */
struct sl_sites *sl_sites_new(const struct sl_log *log);
struct sl_sites *sl_sites_free(struct sl_sites *sites); /* NULL is fine; returns NULL */

/* A frame, or a site. One whose number is known already is left out. 0, or -ENOMEM with the reason in error. */
int sl_sites_frame(struct sl_sites *sites, const struct sl_event_frame *frame, struct sl_error *error);
int sl_sites_site(struct sl_sites *sites, const struct sl_event_site *site, struct sl_error *error);

/* The number itself, or 0 where no site has it: its definition was lost. */
uint32_t sl_sites_known(const struct sl_sites *sites, uint32_t site);

/* Rows of the tables frame and site. */
int sl_sites_write(const struct sl_sites *sites, struct sl_ledger_writer *writer, struct sl_error *error);

/* Whose code a file has, by its path. Native frames, which PyTorch's memory snapshots may have, name no line.
 * torch_directory: where PyTorch is installed, without a slash at its end; NULL: not known, then site-packages tell. */
enum sl_code_of { SL_CODE_OF_USER, SL_CODE_OF_LIBRARY, SL_CODE_OF_PYTORCH, SL_CODE_OF_PYTHON, SL_CODE_OF_NATIVE };
enum sl_code_of sl_code_of(const char *file, const char *torch_directory);

#endif
