"""Firefox without a window, driven by WebDriver BiDi: it needs no driver program, only a WebSocket."""

import itertools
import json
import shutil
import subprocess
import time

FIREFOX = shutil.which("firefox-esr")  # Debian's: other packages keep it from profiles outside of their own places

PREFERENCES = """
user_pref("browser.shell.checkDefaultBrowser", false);
user_pref("browser.startup.homepage_override.mstone", "ignore");
user_pref("datareporting.policy.dataSubmissionEnabled", false);
user_pref("layout.css.prefers-color-scheme.content-override", %d);
"""


class Firefox:
    """One process and one tab. websocket: the module of PyPI's websocket-client."""

    def __init__(self, websocket, profile, dark=False):
        (profile / "user.js").write_text(PREFERENCES % (0 if dark else 1))
        self.process = subprocess.Popen([FIREFOX, "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0"],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.socket = websocket.create_connection(f"ws://{self._address(profile)}/session", timeout=300, suppress_origin=True)
        except Exception:
            self.process.kill()
            raise
        self.numbers = itertools.count(1)
        self.log = []
        self.version = self.ask("session.new", capabilities={})["capabilities"]["browserVersion"]
        self.ask("session.subscribe", events=["log.entryAdded"])
        self.tab = self.ask("browsingContext.getTree")["contexts"][0]["context"]

    def _address(self, profile):
        """Where it listens: it writes that into its profile."""
        end = time.time() + 300
        while time.time() < end and self.process.poll() is None:
            try:
                told = json.loads((profile / "WebDriverBiDiServer.json").read_text())
                return f"{told['ws_host']}:{told['ws_port']}"
            except (OSError, ValueError):
                time.sleep(0.05)
        raise AssertionError("Firefox did not start")

    def ask(self, method, **parameters):
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            told = json.loads(self.socket.recv())
            if told.get("method") == "log.entryAdded":
                self.log.append(told["params"])
            if told.get("id") == number:
                assert told["type"] == "success", told
                return told["result"]

    def run(self, script, *arguments):
        """The value of a function's body, which takes the arguments; both as JSON has them."""
        told = self.ask("script.evaluate", target={"context": self.tab}, awaitPromise=False,
                        expression=f"JSON.stringify((function () {{ {script} }}).apply(null, {json.dumps(arguments)}))")
        assert told["type"] == "success", told
        return json.loads(told["result"].get("value", "null"))

    def act(self, kind, *actions):
        device = {"type": kind, "id": kind, "actions": list(actions)}
        if kind == "pointer":
            device["parameters"] = {"pointerType": "mouse"}
        self.ask("input.performActions", context=self.tab, actions=[device])

    def quit(self):
        self.socket.close()
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
