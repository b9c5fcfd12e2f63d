"""The wheel's project URL: where its source was cloned from, if that looks public, or what SHARDLEDGER_PROJECT_URL says.

scikit-build-core asks for it (pyproject.toml). Credentials in an address are left out, and one without a public host's name is none.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
PRIVATE = (".localhost", ".local", ".internal", ".lan")


def public(address):
    """As a page's address: https://github.com/a/b of git@github.com:a/b.git. None of a path, localhost or a number."""
    if not re.match(r"[a-z+]+://", address):
        address = re.sub(r"^([^/:]+@)?([^/:]+):(?!/)", r"ssh://\2/", address)
    parts = urlsplit(address)
    host = parts.hostname or ""
    if parts.scheme not in ("http", "https", "ssh") or not re.search(r"\.[a-z][a-z0-9-]+$", host) or host.endswith(PRIVATE):
        return None
    web = parts.scheme != "ssh"
    port = f":{parts.port}" if web and parts.port else ""
    path = parts.path.rstrip("/").removesuffix(".git")
    return f"{parts.scheme if web else 'https'}://{host}{port}{path}"


def dynamic_metadata(field, settings=None, project=None):
    address = os.environ.get("SHARDLEDGER_PROJECT_URL", "" if shutil.which("git") is None else None)
    if address is None:  # of this checkout alone, not of one that an unpacked archive lies in
        done = subprocess.run(["git", f"--git-dir={ROOT / '.git'}", "remote", "get-url", "origin"], capture_output=True, text=True)
        address = done.stdout.strip()
    url = public(address)
    return {"Source": url} if url else {}
