"""Talks to `shardledger mcp` through the protocol's official client library; started by mcp_test.py, prints JSON.

    python mcp_client.py COMMAND RUN auto|legacy|2026-07-28
"""

import asyncio
import json
import sys

from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPError


async def main(command, run, mode):
    server = StdioServerParameters(command=command, args=["mcp", run])
    async with Client(server, mode=mode, read_timeout_seconds=300) as client:
        said = {"version": client.protocol_version, "tools": [tool.name for tool in (await client.list_tools()).tools]}
        if mode == "legacy":
            await client.send_ping()
        asked = {"open_run": {}, "describe_schema": {"table": "step_summary"}, "list_questions": {},
                 "run_question": {"id": "can-i-trust-it", "max_rows": 1}, "query": {"sql": "SELECT count(*) AS ranks FROM rank"},
                 "explain": {"allocation": "1"}, "diff": {"rank": 0, "other_rank": 1, "min_bytes": 0}}
        for tool, arguments in asked.items():
            answer = await client.call_tool(tool, arguments)
            said[tool] = [answer.is_error, json.loads(answer.content[0].text)]
        wrong = await client.call_tool("query", {"sql": "DROP TABLE rank"})
        said["wrong"] = [wrong.is_error, wrong.content[0].text]
        try:
            await client.call_tool("no_such_tool", {})
        except MCPError as error:
            said["no_such_tool"] = error.code
        print(json.dumps(said))


asyncio.run(main(*sys.argv[1:]))
