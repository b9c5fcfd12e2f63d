/* Where a command prints: lines of text around its tables, and the document that they are in. */
#include "output/table.h"
#include "output/text.h"
#include "output/units.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void sl_output_open(struct sl_output *out, enum sl_format format, bool exact_bytes) {
  memset(out, 0, sizeof(*out));
  out->file = stdout;
  out->format = format;
  out->exact_bytes = exact_bytes;
  sl_terminal_detect(stdout, &out->terminal);
}

void sl_output_document(struct sl_output *out) {
  out->document = !out->only;
  if (out->format == SL_FORMAT_json && out->document)
    fputc('{', out->file);
}

int sl_output_close(struct sl_output *out) {
  if (out->document && out->format == SL_FORMAT_json)
    fputs("}\n", out->file);
  if (out->sort && !out->sorted && out->tables && out->failed == 0) {
    sl_complain("--sort: no table here has a column '%s'; name one as its heading or as --csv does", out->sort);
    out->failed = -EINVAL;
    return out->failed;
  }
  if (out->only && out->others[0] && !out->tables && out->failed == 0) {
    sl_complain("--table: there is no table '%s' here, but: %s", out->only, out->others);
    out->failed = -EINVAL;
    return out->failed;
  }
  errno = 0;
  if ((fflush(out->file) != 0 || ferror(out->file)) && out->failed == 0)
    out->failed = errno ? -errno : -EIO;
  if (out->failed == -ENOMEM)
    sl_complain("out of memory: the results are not whole");
  else if (out->failed < 0)
    sl_complain("the results could not be written: %s", strerror(-out->failed));
  return out->failed;
}

static void output_line(struct sl_output *out, enum sl_style style, const char *format, va_list arguments) {
  char *text = NULL;
  char *clean = NULL;
  if (out->format != SL_FORMAT_text)
    return;
  if (vasprintf(&text, format, arguments) < 0)
    text = NULL;
  clean = text ? sl_clean_text(text) : NULL;
  if (!clean)
    out->failed = out->failed ? out->failed : -ENOMEM;
  else if (out->lines++, style == SL_STYLE_plain)
    fprintf(out->file, "%s\n", clean);
  else
    fprintf(out->file, "%s%s%s\n", sl_style(&out->terminal, style), clean, sl_style(&out->terminal, SL_STYLE_plain));
  free(clean);
  free(text);
}

void sl_output_line(struct sl_output *out, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  output_line(out, SL_STYLE_plain, format, arguments);
  va_end(arguments);
}

void sl_output_styled(struct sl_output *out, enum sl_style style, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  output_line(out, style, format, arguments);
  va_end(arguments);
}
