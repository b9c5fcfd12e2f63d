"""The report inside a notebook."""

import html
import os
import tempfile


class Report:
    """What `shardledger report` makes of a ledger: one page that needs nothing else. Displays itself in Jupyter."""

    def __init__(self, ledger, run_command):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "report.html")
            run_command("report", ledger, "-o", path)
            with open(path, encoding="utf-8") as file:
                self.html = file.read()

    def save(self, path):
        """Writes the page; returns its path."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.html)
        return path

    def _repr_html_(self):
        # A frame, because the page has styles and scripts of its own; sandboxed: it has no business with the notebook.
        return ('<iframe title="ShardLedger report" sandbox="allow-scripts" style="width: 100%; height: 900px; border: 0" '
                f'srcdoc="{html.escape(self.html)}"></iframe>')
