"""A real browser for tests/page: Chromium, told what to do over a pipe, and its tabs, as people use them."""

import base64
import itertools
import json
import os
import select
import subprocess

from page_cluster import DEADLINE_S, Process, eventually

QUIET = ["--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--lang=en-GB"]
DESKTOP, PHONE = (1280, 800), (390, 780)
# Roles that must have a name.
CONTROLS = {"button", "link", "textbox", "checkbox", "searchbox", "combobox", "dialog", "region", "navigation",
            "complementary", "image", "img", "heading"}


class Browser(Process):
    """Chromium, over its debugging pipe: JSON messages that end with a zero byte."""

    def __init__(self, folder):
        commands, self.commands = os.pipe()
        self.answers, answers = os.pipe()
        # As root there is no sandbox; the page is our own.
        line = ["chromium", "--headless=new", "--no-sandbox", *QUIET, f"--user-data-dir={folder}/browser",
                "--remote-debugging-pipe"]
        self.start(["bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "-", *line],
                   pass_fds=[commands, answers], stdout=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        self.ids, self.buffer, self.troubles = itertools.count(1), b"", []

    def ask(self, method, session=None, **params):
        """Sends a command and gives its result."""
        number = next(self.ids)
        command = {"id": number, "method": method, "params": params, **({"sessionId": session} if session else {})}
        os.write(self.commands, json.dumps(command).encode() + b"\0")
        while True:
            message = self._read()
            self._note(message)
            if message.get("id") == number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def _note(self, message):
        """Keeps what the page throws and what its policy forbids. That a server is away is no fault of the page."""
        if message.get("method") == "Runtime.exceptionThrown":
            self.troubles.append(message["params"]["exceptionDetails"])
        if message.get("method") == "Log.entryAdded":
            entry = message["params"]["entry"]
            if entry["source"] in ("security", "violation", "javascript", "deprecation"):
                self.troubles.append(entry)

    def _read(self):
        while b"\0" not in self.buffer:
            readable, _, _ = select.select([self.answers], [], [], DEADLINE_S)
            chunk = os.read(self.answers, 1 << 16) if readable else b""
            if not chunk:
                raise TimeoutError("the browser does not answer")
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)


class Tab:
    """A window that shows the page, as one person uses it."""

    def __init__(self, browser, url, name, size=DESKTOP):
        self.browser, self.name, self.url = browser, name, url
        context = browser.ask("Target.createBrowserContext")["browserContextId"]
        window = {"url": "about:blank", "browserContextId": context, "newWindow": True}
        self.target = browser.ask("Target.createTarget", **window)["targetId"]
        self.session = browser.ask("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Accessibility"):
            self.ask(f"{domain}.enable")
        self.ask("Log.startViolationsReport", config=[])
        self.resize(size)
        self.ask("Page.navigate", url=url)
        self.until("the cursor in the field for the name", "document.activeElement?.id === 'name'")

    def sign_in(self):
        self.fill("#name", self.name)
        self.submit("#login-form")
        self.until_online()

    def ask(self, method, **params):
        return self.browser.ask(method, self.session, **params)

    # What is there

    def value(self, script):
        """The value of an expression in the page; none while the page is being loaded."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value") if "exceptionDetails" not in answer else None

    def until(self, what, script, seconds=DEADLINE_S):
        try:
            return eventually(f"{what}, for {self.name}", lambda: self.value(script), seconds)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; there is: {(self.value('document.body.innerText') or '')[:1000]}") from None

    def until_online(self):
        self.until("a connection", "document.getElementById('app').dataset.phase === 'online'")

    def until_shown(self, text, selector="#log"):
        # Names within sentences are set apart by characters that do not show.
        shown = f"document.querySelector({json.dumps(selector)})?.innerText.replace(/[\\u2068\\u2069]/g, '')"
        self.until(repr(text), f"{shown}.includes({json.dumps(text)})")
        print(f"ok      {self.name} sees: {text}", flush=True)

    def until_gone(self, text, selector):
        shown = f"document.querySelector({json.dumps(selector)}).innerText"
        self.until(f"no {text!r}", f"!{shown}.includes({json.dumps(text)})")
        print(f"ok      {self.name} no longer sees: {text}", flush=True)

    def until_state(self, text, state):
        """Waits until one's own message is in a state."""
        self.until(f"{text[:40]!r} {state}", f"{self._item(text)}?.dataset.state === {json.dumps(state)}")
        print(f"ok      {self.name} sees that it is {state}: {text}", flush=True)

    def state_of(self, text):
        return self.value(f"{self._item(text)}.dataset.state")

    def top_of(self, text):
        """Where on the screen a message is."""
        return self.value(f"{self._item(text)}.getBoundingClientRect().top")

    @staticmethod
    def _item(text):
        items = "[...document.querySelectorAll('#log .message')]"
        return f"{items}.find((item) => item.querySelector('.text').innerText === {json.dumps(text)})"

    def texts(self):
        return self.value("[...document.querySelectorAll('#log .text')].map((text) => text.innerText)")

    def is_shown(self, selector):
        return self.value(f"document.querySelector({json.dumps(selector)})?.checkVisibility() ?? false")

    def unnamed(self):
        """What can be used, and has no name for a screen reader."""
        nodes = self.ask("Accessibility.getFullAXTree")["nodes"]
        roles = [(node["role"]["value"], node.get("name", {}).get("value", "").strip(), node) for node in nodes
                 if not node.get("ignored")]
        return [(role, node.get("properties")) for role, name, node in roles if role in CONTROLS and not name]

    # What the person does

    def click(self, selector):
        element = f"document.querySelector({json.dumps(selector)})"
        can_be = f"{element}?.checkVisibility() && !{element}.disabled"
        self.until(f"something to click at {selector}", f"{can_be} && ({element}.click(), true)")

    def fill(self, selector, text):
        """Types into a field, as a keyboard does."""
        self.until(f"a field {selector}", f"(document.querySelector({json.dumps(selector)})?.select(), true)")
        self.value(f"document.querySelector({json.dumps(selector)}).focus()")
        self.ask("Input.insertText", text=text)

    def submit(self, selector):
        self.value(f"document.querySelector({json.dumps(selector)}).requestSubmit()")

    def press(self, key, code, **more):
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **more)

    def say(self, text):
        self.fill("#text", text)
        self.press("Enter", 13)

    def write_to(self, peer):
        self.click("#new")
        self.fill("#peer", peer)
        self.submit("#direct")
        self.until(f"a chat with {peer}", f"document.getElementById('title').innerText === {json.dumps(peer)}")

    def open(self, title):
        rows = "[...document.querySelectorAll('.room')]"
        row = f"{rows}.find((row) => row.querySelector('.name').innerText === {json.dumps(title)})"
        self.until(f"{title} in the list", f"{row} && ({row}.click(), true)")
        self.until(f"{title} open", f"document.getElementById('title').innerText === {json.dumps(title)}")

    def reload(self):
        self.value("window.isOld = true")
        self.ask("Page.reload")
        self.until("the page anew", "window.isOld === undefined")

    def close(self):
        self.browser.ask("Target.closeTarget", targetId=self.target)

    # What is around

    def resize(self, size):
        screen = {"width": size[0], "height": size[1], "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.ask("Emulation.setDeviceMetricsOverride", **screen)
        self.ask("Emulation.setTouchEmulationEnabled", enabled=size == PHONE)

    def scheme(self, name):
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def hide(self):
        """Puts the window into the background."""
        self._window("minimized")
        self.until("the window in the background", "document.visibilityState === 'hidden'")

    def show(self):
        self._window("normal")
        self.until("the window in the foreground", "document.visibilityState === 'visible'")

    def _window(self, state):
        window = self.browser.ask("Browser.getWindowForTarget", targetId=self.target)["windowId"]
        self.browser.ask("Browser.setWindowBounds", windowId=window, bounds={"windowState": state})

    def photograph(self, path):
        # Two frames: what was shown last has been painted.
        self.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))
