#include "ask_ledger.h"
#include "open_ledger.h"

#include <errno.h>

int sl_print_report(const char *path, const struct sl_output_arguments *format, sl_report *report, void *context) {
  struct sl_output out;
  struct sl_error error = {{0}};
  struct sl_db *db = NULL;
  int r = 0;

  path = path ? path : sl_default_directory();
  if (sl_output_begin(&out, format) < 0)
    return SL_EXIT_USAGE;
  r = sl_open_ledger(path, &db, &error);
  if (r < 0) {
    sl_complain("%s", error.text);
    return SL_EXIT_USAGE;
  }
  r = report(db, &out, context, &error);
  db = sl_db_close(db);
  if (r == -EBADMSG)
    sl_complain("%s is damaged (%s); make it again with 'shardledger ingest DIR'", path, error.text);
  else if (r < 0)
    sl_complain("%s: %s", path, error.text);
  return sl_output_close(&out) < 0 || r < 0 ? SL_EXIT_USAGE : SL_EXIT_OK;
}
