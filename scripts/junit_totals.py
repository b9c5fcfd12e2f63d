"""Adds up JUnit files, of ctest and pytest alike: prints passed, failed and skipped of the files given."""

import sys
import xml.etree.ElementTree as ElementTree


def totals(path):
    passed = failed = skipped = 0
    for case in ElementTree.parse(path).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            failed += 1
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


if __name__ == "__main__":
    print(*map(sum, zip(*map(totals, sys.argv[1:]))))
