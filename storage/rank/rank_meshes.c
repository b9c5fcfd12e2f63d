/*
 * The facts mesh.0, mesh.1, …: "SIZE:COORDINATE:NAME" for each dimension, as the companion writes them (meshes.py); and
 * rehearsed_group.1, …: "RANKS:USES" (rehearsal.py). Of the groups, those that no call was made in are not told.
 */
#include "rank_builder.h"
#include "storage/tables/ledger_tables.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define MESHES_MAX 64
#define GROUPS_MAX 256

enum { USE_RING = 1, USE_SEND = 2, USE_RECEIVE = 4 }; /* mirror_group.cpp */

/* A number with a colon behind it; NULL: something else. */
static const char *number_read(const char *text, int64_t *out) {
  char *end;
  if (!isdigit((unsigned char)*text))
    return NULL;
  *out = strtoll(text, &end, 10);
  return *end == ':' ? end + 1 : NULL;
}

/* What can't be read ends the mesh. */
static int mesh_write(struct sl_rank_builder *b, int64_t number, const char *text) {
  struct sl_mesh_cells cells = {.mesh = number};
  int r = 0;
  while (r == 0 && (text = number_read(text, &cells.size)) && (text = number_read(text, &cells.coordinate))) {
    const size_t length = strcspn(text, " ");
    char *dim = strndup(text, length);
    if (!dim)
      return sl_no_memory(b->error);
    cells.dim = dim;
    r = sl_put_mesh(b->writer, &cells, b->error);
    cells.place++;
    free(dim);
    text += length + (text[length] == ' ');
  }
  return r;
}

int sl_rank_meshes_write(struct sl_rank_builder *b) {
  int r = 0;
  for (int64_t number = 0; number < MESHES_MAX && r == 0; number++) {
    char key[32];
    snprintf(key, sizeof key, "mesh.%lld", (long long)number);
    const char *text = sl_log_info(b->log, key);
    if (!text)
      break;
    r = mesh_write(b, number, text);
  }
  return r;
}

int sl_rank_rehearsed_groups_write(struct sl_rank_builder *b) {
  int r = 0;
  for (int64_t number = 1; number <= GROUPS_MAX && r == 0; number++) {
    char key[48];
    snprintf(key, sizeof key, "rehearsed_group.%lld", (long long)number);
    const char *text = sl_log_info(b->log, key);
    struct sl_rehearsed_group_cells cells = {.number = number};
    if (!text || !(text = number_read(text, &cells.nranks)))
      continue;
    const int uses = atoi(text);
    cells.rings = (uses & USE_RING) != 0;
    cells.sends = (uses & USE_SEND) != 0;
    cells.receives = (uses & USE_RECEIVE) != 0;
    r = sl_put_rehearsed_group(b->writer, &cells, b->error);
  }
  return r;
}
