"""Adds up JUnit files, of ctest and pytest alike: prints passed, failed and skipped.

    junit_totals.py FILE [SUITES]

SUITES: a directory of GoogleTest's files. A test of ctest's that has one there, of its name, is as many tests as that file says.
"""

import os
import sys
import xml.etree.ElementTree as ElementTree


def outcome(case):
    if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
        return "failed"
    if case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
        return "skipped"
    return "passed"


def outcomes(path, suites=None):
    found = []
    for case in ElementTree.parse(path).iter("testcase"):
        own = os.path.join(suites, case.get("name") + ".xml") if suites else ""
        cases = outcomes(own) if os.path.exists(own) else [outcome(case)]
        if outcome(case) == "failed" and "failed" not in cases:
            cases.append("failed")  # its process did not end well after its tests had
        found.extend(cases)
    return found


if __name__ == "__main__":
    all_of_them = outcomes(*sys.argv[1:])
    print(*(all_of_them.count(word) for word in ("passed", "failed", "skipped")))
