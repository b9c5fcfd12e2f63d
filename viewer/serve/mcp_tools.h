/*
 * What an assistant may ask: the tools of mcp_tools.json, each a function that writes its answer as one JSON value.
 *
 * Answers go to the client as text, not as structured content: many clients read numbers as doubles, which instants in
 * nanoseconds do not fit.
 */
#ifndef SHARDLEDGER_MCP_TOOLS_H
#define SHARDLEDGER_MCP_TOOLS_H

#include "serve/request.h"
#include "storage/tables/db.h"

#include <stdio.h>

struct sl_mcp_session {
  const char *directory, *run; /* that the server was started for; run may be NULL */
  struct sl_db *db;            /* that is open; NULL: none yet */
  char *path, *chosen;         /* its own, and which run of it; NULL: the newest */
  struct sl_request *request;  /* the call; its arguments are at $.params.arguments */
};

typedef int sl_mcp_tool(struct sl_mcp_session *session, FILE *answer, struct sl_error *error);

extern const char sl_mcp_tools_json[]; /* mcp_tools.json: the list that clients get */

/* NULL: there is no such tool. It returns 0, or a negative errno with the sentence for the assistant in error. */
sl_mcp_tool *sl_mcp_find_tool(const char *name);

void sl_mcp_close_run(struct sl_mcp_session *session);

/* ---- what the tools are made of ---- */

enum { SL_MCP_ROWS = 200, SL_MCP_ROWS_MAX = 5000, SL_MCP_BYTES = 256 * 1024 };

/* Runs one statement that only reads, within limits of rows, bytes, time and memory, and writes what it found. */
int sl_mcp_query(struct sl_db *db, const char *sql, int64_t rows, FILE *answer, struct sl_error *error);

/*
 * Has another command of this program answer, whose arguments end with NULL. Its JSON and what it noted are the answer;
 * its complaint is the error.
 */
int sl_mcp_ask_command(struct sl_request *request, const char *const arguments[], FILE *answer, struct sl_error *error);

#endif
