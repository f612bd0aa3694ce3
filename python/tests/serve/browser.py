"""A headless Chromium, driven by ChromeDriver over HTTP with the standard library."""

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CHROMEDRIVER = shutil.which("chromedriver")

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]

KEYS = {"Enter": "\ue007", "Shift": "\ue008", "Control": "\ue009", "Alt": "\ue00a", "Escape": "\ue00c", "ArrowUp": "\ue013"}


class Driver:
    """A ChromeDriver process."""

    def __init__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [CHROMEDRIVER, f"--port={port}", "--silent"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while True:
            try:
                if call(f"{self.url}/status", "GET")["ready"]:
                    return
            except OSError:
                pass
            if time.monotonic() > end:
                self.close()
                raise RuntimeError("chromedriver did not start within 30 s")
            time.sleep(0.05)

    def close(self):
        self.process.terminate()
        self.process.wait(10)


class Browser:
    """A window with a profile of its own."""

    def __init__(self, driver, width=1280, height=860, phone=False, dark=False):
        self.profile = tempfile.mkdtemp(prefix="hesper-page-")
        options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={self.profile}", f"--window-size={width},{height}"]}
        if phone:
            metrics = {"width": width, "height": height, "pixelRatio": 1.5, "touch": True}
            options["mobileEmulation"] = {"deviceMetrics": metrics}
        capabilities = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "unhandledPromptBehavior": "ignore",
        }
        session = call(f"{driver.url}/session", "POST", {"capabilities": {"alwaysMatch": capabilities}})
        self.url = f"{driver.url}/session/{session['sessionId']}"
        self.post("timeouts", script=20_000, pageLoad=20_000)
        if not phone:
            self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        if dark:
            self.colours("dark")

    def close(self):
        call(self.url, "DELETE")
        shutil.rmtree(self.profile, ignore_errors=True)

    def post(self, path, **body):
        return call(f"{self.url}/{path}", "POST", body)

    def devtools(self, command, **params):
        return self.post("goog/cdp/execute", cmd=command, params=params)

    def colours(self, scheme):
        """The colours that the system prefers."""
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, url):
        self.post("url", url=url)

    def run(self, script, *args):
        """Runs the body of a function in the page and returns its result."""
        return self.post("execute/sync", script=script, args=list(args))

    def wait(self, script, *args, seconds=15):
        """Runs a script until its result is true, and returns it."""
        end = time.monotonic() + seconds
        while True:
            result = self.run(script, *args)
            if result:
                return result
            if time.monotonic() > end:
                state = self.run("return document.body.innerText")
                raise AssertionError(f"still not so after {seconds} s: {script} {args}\n{state}\n{self.log()}")
            time.sleep(0.05)

    def find(self, selector):
        found = self.post("element", using="css selector", value=selector)
        return next(iter(found.values()))

    def click(self, selector):
        self.post(f"element/{self.find(selector)}/click")

    def type(self, selector, text):
        self.post(f"element/{self.find(selector)}/value", text=text)

    def press(self, *keys):
        """Presses keys together in the focused element."""
        values = [KEYS.get(key, key) for key in keys]
        steps = [{"type": "keyDown", "value": key} for key in values]
        steps += [{"type": "keyUp", "value": key} for key in reversed(values)]
        self.post("actions", actions=[{"type": "key", "id": "keyboard", "actions": steps}])

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0])?.innerText ?? null", selector)

    def log(self):
        """What the browser has reported since the last call: errors of scripts, violations of the policy."""
        return [entry["message"] for entry in self.post("se/log", type="browser")]

    def screenshot(self, path):
        data = call(f"{self.url}/screenshot", "GET")
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))


def call(url, method, body=None):
    data = json.dumps(body or {}).encode() if method == "POST" else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["value"]
    except urllib.error.HTTPError as error:
        value = json.load(error)["value"]
        raise AssertionError(f"{value['error']}: {value['message'].splitlines()[0]}") from None
