/* SL_SQL_DIRECTORY is viewer/; the build reassembles when a file of the report changes. */
#include "report/page_text.h"
#include "storage/tables/sql_embed.h"

#include <stddef.h>

#define FILE_TEXT(symbol, name)                                                                                        \
  SL_SQL_TEXT(symbol, SL_SQL_DIRECTORY "/report/" name);                                                               \
  extern const char symbol[]

SL_SQL_TEXT(sl_page_template, SL_SQL_DIRECTORY "/report/page.html");
FILE_TEXT(sl_script_uplot, "uplot.iife.min.js");
FILE_TEXT(sl_style_page, "page.css");
FILE_TEXT(sl_script_units, "units.js");
FILE_TEXT(sl_script_data, "data.js");
FILE_TEXT(sl_script_memory, "memory.js");
FILE_TEXT(sl_script_look, "look.js");
FILE_TEXT(sl_script_timeline, "timeline.js");
FILE_TEXT(sl_script_lanes, "lanes.js");
FILE_TEXT(sl_script_strips, "strips.js");
FILE_TEXT(sl_script_tables, "tables.js");
FILE_TEXT(sl_script_bars, "bars.js");
FILE_TEXT(sl_script_modules, "modules.js");
FILE_TEXT(sl_script_code, "code.js");
FILE_TEXT(sl_script_holding, "holding.js");
FILE_TEXT(sl_script_icicle, "icicle.js");
FILE_TEXT(sl_script_holders, "holders.js");
FILE_TEXT(sl_script_device, "device.js");
FILE_TEXT(sl_script_overview, "overview.js");
FILE_TEXT(sl_script_advice, "advice.js");
FILE_TEXT(sl_script_fleet, "fleet.js");
FILE_TEXT(sl_script_main, "main.js");

const char *const sl_page_styles[] = {sl_style_page, NULL};
const char *const sl_page_scripts[] = {sl_script_uplot,   sl_script_units,    sl_script_data,
                                       sl_script_memory,  sl_script_look,     sl_script_timeline,
                                       sl_script_lanes,   sl_script_strips,   sl_script_tables,
                                       sl_script_bars,    sl_script_modules,  sl_script_code,
                                       sl_script_holding, sl_script_icicle,   sl_script_holders,
                                       sl_script_device,  sl_script_overview, sl_script_advice,
                                       sl_script_fleet,   sl_script_main,     NULL};
