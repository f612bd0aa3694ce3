"""The pages as `hesper serve` serves them, in a headless Chromium."""

import os
import pathlib
import signal
import subprocess
import urllib.error
import urllib.request

import pytest

from browser import CHROMEDRIVER, CHROMIUM, Browser, Driver
from stub_server import PAGE

ROOT = pathlib.Path(__file__).parents[3]
PROGRAM = pathlib.Path(os.environ.get("HESPER_PROGRAM", ROOT / "target/debug/hesper"))
TEMPLATE = "{% for m in messages %}{{ m.content }}{% if not loop.last %} {% endif %}{% endfor %}"
KEY = "page-key"

pytestmark = [
    pytest.mark.skipif(not (CHROMIUM and CHROMEDRIVER), reason="needs chromium and chromedriver"),
    pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built"),
]


@pytest.fixture(autouse=True)
def default_device():
    """The server has a process of its own."""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page") / "chatty"
    subprocess.run([PROGRAM, "quantize", "demo", folder, "--bits", "8"], check=True, capture_output=True)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    keys = folder.parent / "keys"
    keys.write_text(KEY + "\n")
    command = [PROGRAM, "serve", "--model", folder, "--port", "0", "--api-key-file", keys, "--drain", "5"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    yield next(word for word in line.split() if word.startswith("http://"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


@pytest.fixture(scope="module")
def page(server):
    driver = Driver()
    browser = Browser(driver)
    browser.open(server + "/")
    browser.wait("return document.querySelector('#model').innerText.includes('key')")
    browser.click("#open-settings")
    browser.type("[name=api_key]", KEY)
    browser.run("document.querySelector('[name=max_tokens]').value = ''")
    browser.type("[name=max_tokens]", "8")
    browser.type("[name=temperature]", "0")
    browser.click("#settings .main-button")
    browser.wait("return document.querySelector('#model').value === 'chatty'")
    browser.log()
    yield browser
    browser.close()
    driver.close()


def test_a_chat_is_answered(page, server):
    page.open(server + "/")
    page.wait("return !document.querySelector('#model').disabled")
    page.type("#prompt", "A language model")
    page.press("Enter")
    page.wait("return document.querySelector('.stats')")
    assert page.text(".answer") == "reads a text and guesses the next word"
    assert "8 tokens" in page.text(".stats")
    assert page.log() == []


def test_an_unknown_setting_is_refused_with_the_words_of_the_server(page, server):
    page.open(server + "/")
    page.wait("return !document.querySelector('#model').disabled")
    page.run("document.querySelector('#model').append(new Option('none', 'none', true, true))")
    page.type("#prompt", "Hello")
    page.press("Enter")
    page.wait("return document.querySelector('.failure')?.innerText.includes('none')")


def test_inspect_shows_the_engine(page, server):
    page.log()
    page.open(server + "/inspect")
    page.wait("return document.querySelector('#health').innerText === 'Ready'")
    page.wait("return document.querySelector('#requests').innerText.includes('No request')")
    page.wait("return [...document.querySelectorAll('.tiles div')].some((each) => /Completed\\s+[1-9]/.test(each.innerText))")
    assert page.log() == []


def test_files_are_served_with_their_policy_and_data_needs_a_key(server):
    with urllib.request.urlopen(server + "/assets/chat.js") as response:
        assert response.read() == (PAGE / "chat.js").read_bytes()
        headers = response.headers
    policy = (PAGE / "content-security-policy.txt").read_text().strip()
    assert (headers["Content-Security-Policy"], headers["X-Content-Type-Options"]) == (policy, "nosniff")
    request = urllib.request.Request(server + "/assets/chat.js", headers={"If-None-Match": headers["ETag"]})
    with pytest.raises(urllib.error.HTTPError, match="304"):
        urllib.request.urlopen(request)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(server + "/inspect/data")
