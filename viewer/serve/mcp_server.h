/*
 * A Model Context Protocol server: JSON-RPC 2.0, one message a line, requests from one stream and answers to another,
 * one after the other. Speaks the protocol's versions with a handshake (2024-11-05 to 2025-11-25) and the one without
 * (2026-07-28), so every request is answered at any time.
 */
#ifndef SHARDLEDGER_MCP_SERVER_H
#define SHARDLEDGER_MCP_SERVER_H

#include "storage/error.h"

#include <stdio.h>

enum { SL_MCP_LINE_BYTES = 1 << 20 }; /* a longer message is refused */

/*
 * Until `in` ends or `out` can't be written. directory and run: what open_run opens without a path; run may be NULL. 0
 * or a negative errno with the sentence in error.
 */
int sl_mcp_serve(FILE *in, FILE *out, const char *directory, const char *run, struct sl_error *error);

#endif
