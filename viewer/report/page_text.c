/* SL_VIEWER_DIRECTORY is viewer/; the build reassembles when a file of the report changes. */
#include "report/page_text.h"
#include "embed_text.h"

#include <stddef.h>

/* In the order in which they run. */
#define SCRIPTS(SCRIPT)                                                                                                \
  SCRIPT(uplot, "uplot.iife.min.js")                                                                                   \
  SCRIPT(units, "units.js")                                                                                            \
  SCRIPT(data, "data.js")                                                                                              \
  SCRIPT(memory, "memory.js")                                                                                          \
  SCRIPT(look, "look.js")                                                                                              \
  SCRIPT(timeline, "timeline.js")                                                                                      \
  SCRIPT(lanes, "lanes.js")                                                                                            \
  SCRIPT(strips, "strips.js")                                                                                          \
  SCRIPT(tables, "tables.js")                                                                                          \
  SCRIPT(bars, "bars.js")                                                                                              \
  SCRIPT(modules, "modules.js")                                                                                        \
  SCRIPT(code, "code.js")                                                                                              \
  SCRIPT(holding, "holding.js")                                                                                        \
  SCRIPT(icicle, "icicle.js")                                                                                          \
  SCRIPT(holders, "holders.js")                                                                                        \
  SCRIPT(device, "device.js")                                                                                          \
  SCRIPT(overview, "overview.js")                                                                                      \
  SCRIPT(allocations, "allocations.js")                                                                                \
  SCRIPT(story, "story.js")                                                                                            \
  SCRIPT(segments, "segments.js")                                                                                      \
  SCRIPT(compare, "compare.js")                                                                                        \
  SCRIPT(place, "place.js")                                                                                            \
  SCRIPT(svg_context, "svg_context.js")                                                                                \
  SCRIPT(picture, "picture.js")                                                                                        \
  SCRIPT(advice, "advice.js")                                                                                          \
  SCRIPT(capacity, "capacity.js")                                                                                      \
  SCRIPT(who, "who.js")                                                                                                \
  SCRIPT(run_diff, "run_diff.js")                                                                                      \
  SCRIPT(answer, "answer.js")                                                                                          \
  SCRIPT(fleet, "fleet.js")                                                                                            \
  SCRIPT(main, "main.js")

#define FILE_TEXT(symbol, name)                                                                                        \
  SL_EMBED(symbol, SL_VIEWER_DIRECTORY "/report/" name);                                                               \
  extern const char symbol[];
#define SCRIPT_TEXT(word, name) FILE_TEXT(sl_script_##word, name)
#define SCRIPT_SYMBOL(word, name) sl_script_##word,

SL_EMBED(sl_page_template, SL_VIEWER_DIRECTORY "/report/page.html");
FILE_TEXT(sl_style_page, "page.css")
SCRIPTS(SCRIPT_TEXT)

const char *const sl_page_styles[] = {sl_style_page, NULL};
const char *const sl_page_scripts[] = {SCRIPTS(SCRIPT_SYMBOL) NULL};
