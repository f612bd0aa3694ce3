"""The chat page and the inspect page in a headless Chromium, against a server that answers as told."""

import re
import time

import pytest

from browser import CHROMEDRIVER, CHROMIUM, Browser, Driver
from stub_server import PAGE, Stub, snapshot

pytestmark = pytest.mark.skipif(not (CHROMIUM and CHROMEDRIVER), reason="needs chromium and chromedriver")


@pytest.fixture(autouse=True)
def default_device():
    """The page needs no device."""


@pytest.fixture(scope="module")
def driver():
    driver = Driver()
    yield driver
    driver.close()


@pytest.fixture(scope="module")
def window(driver):
    browser = Browser(driver)
    yield browser
    browser.close()


@pytest.fixture
def stub():
    stub = Stub()
    yield stub
    stub.close()


@pytest.fixture
def page(window, stub):
    """The chat page with an empty storage. Fails a test whose page has reported an error."""
    window.open(stub.url + "/")
    window.wait("return !document.querySelector('#model').disabled")
    window.log()
    yield window
    expected = ("Failed to load resource", "ERR_INCOMPLETE_CHUNKED_ENCODING")
    assert [line for line in window.log() if not any(each in line for each in expected)] == []


def send(page, text):
    page.type("#prompt", text)
    page.press("Enter")


def finished(page, count=1):
    """Waits until a number of answers is there and complete."""
    page.wait("return document.querySelectorAll('.assistant:not(.running) .actions').length === arguments[0]", count)


def last_answer(page, what="innerText"):
    return page.run("return [...document.querySelectorAll('.answer')].at(-1)[arguments[0]]", what)


def ask(page, stub, answer, question="Question"):
    stub.answer = answer
    send(page, question)
    finished(page)
    return last_answer(page, "innerHTML")


def test_an_answer_streams_and_the_request_carries_model_and_messages(page, stub):
    stub.answer, stub.pause = "One two three four five **six** seven eight nine ten.", 0.03
    send(page, "Count, please")
    page.wait("return document.querySelector('.running .answer')?.innerText.includes('two')")
    assert "ten" not in last_answer(page)
    finished(page)
    assert last_answer(page) == "One two three four five six seven eight nine ten."
    request = stub.requests[0]
    assert request["model"] == "smollm2-135m-instruct"
    assert request["messages"] == [{"role": "user", "content": "Count, please"}]
    assert request["stream"] is True and request["max_tokens"] == 1024 and "temperature" not in request
    assert "cached" in page.text(".stats")
    send(page, "And on")
    finished(page, 2)
    assert [each["role"] for each in stub.requests[1]["messages"]] == ["user", "assistant", "user"]


def test_markdown_becomes_elements(page, stub):
    html = ask(page, stub, """# Title #

Some *emphasis*, **strong**, ***both***, ~~gone~~, `co<de`, snake_case_name, 2 * 3 * 4, and a\\
break. See https://example.org/a_(b), [a **link**](https://example.org "t") and <https://example.org/x>.

- one
  - nested
    1. deep
- two

  second paragraph
- [x] done

3. three
4. four

> quoted
> > twice

| a | b \\| c |
|---|:-:|
| 1 | `x` |

```python
def f(): # comment
    return "<b>" + 1
```

---
~~~
\ttab
""")
    for part in [
        '<h3 class="md-h1">Title</h3>', "<em>emphasis</em>", "<strong>strong</strong>", "<em><strong>both</strong></em>",
        "<del>gone</del>", "<code>co&lt;de</code>", "snake_case_name, 2 * 3 * 4", "<br>break",
        'href="https://example.org/a_(b)"', ">a <strong>link</strong></a>", 'href="https://example.org/x"', "<ol><li>deep</li></ol>",
        "<p>second paragraph</p>", 'type="checkbox"', '<ol start="3">', "<blockquote><p>twice</p></blockquote>",
        '<th class="align-center">b | c</th>', '<span class="hl-keyword">def</span>', '<span class="hl-comment"># comment</span>',
        "&lt;b&gt;", "<hr>", "\ttab",
    ]:
        assert part in html, f"{part} is not in {html}"


HOSTILE = [
    "<img src=x onerror=\"window.hacked = 1\">",
    "<script>window.hacked = 1</script>",
    "<svg onload='window.hacked = 1'></svg>",
    "[a](javascript:window.hacked=1)",
    "[a](JaVaScRiPt:window.hacked=1)",
    "[a](java\tscript:window.hacked=1)",
    "[a](<java script:window.hacked=1>)",
    "[a](\x01javascript:window.hacked=1)",
    "[a](data:text/html,<script>window.hacked=1</script>)",
    "[a](vbscript:window.hacked=1)",
    "![a](https://example.invalid/track.png)",
    "<javascript:window.hacked=1>",
    "[a](https://example.org/\"onmouseover=\"window.hacked=1)",
    "```\"><img src=x onerror=window.hacked=1>\n</code></pre><script>window.hacked=1</script>\n```",
    "| <img src=x onerror=window.hacked=1> |\n|---|\n| [x](javascript:window.hacked=1) |",
    "- [ ] <iframe src=javascript:window.hacked=1>",
    "<style>body { display: none }</style><form action=x><input name=y></form>",
]


def test_hostile_text_stays_text(page, stub):
    ask(page, stub, "\n\n".join(HOSTILE))
    found = page.run("""
        const answer = document.querySelector('.answer');
        for (const each of answer.querySelectorAll('*')) each.dispatchEvent(new Event('mouseover'));
        for (const each of answer.querySelectorAll('.unsafe-link')) each.click();
        return {
            hacked: window.hacked ?? null,
            tags: [...new Set([...answer.querySelectorAll('*')].map((each) => each.tagName))],
            attributes: [...new Set([...answer.querySelectorAll('*')].flatMap((each) => each.getAttributeNames()))],
            links: [...answer.querySelectorAll('a')].map((each) => each.protocol),
            text: answer.textContent,
        }""")
    assert found["hacked"] is None
    assert not {"IMG", "SCRIPT", "SVG", "IFRAME", "STYLE", "FORM"} & set(found["tags"])
    assert not [name for name in found["attributes"] if name.startswith("on") or name in ("src", "style")]
    assert set(found["links"]) == {"https:"}
    assert "<script>window.hacked = 1</script>" in found["text"]


@pytest.mark.parametrize("text", [
    "*" * 50_000, "**a" * 20_000, "_a_" * 20_000, "[" * 50_000, "[a](" * 15_000, "`" * 20_000 + "a", "`a``b```" * 5_000, "> " * 20_000 + "x",
    "- " * 20_000 + "x", "\n".join("  " * at + "- x" for at in range(300)), "|" * 50_000 + "\n" + "|-" * 25_000, "#" + " " * 50_000 + "x",
    "http://" + ")" * 50_000, "~~" * 30_000, "<https://" * 8_000, "a\n" * 20_000, "1. x\n" * 5_000, "```\n" * 10_000, "\\" * 50_000,
], ids=lambda text: re.sub(r"\s", "_", text[:8]))
def test_no_text_freezes_the_renderer(page, text):
    milliseconds = page.run("""
        return import('/assets/markdown.js').then(({ MarkdownView }) => {
            const start = performance.now();
            new MarkdownView(document.createElement('div')).set(arguments[0]);
            return performance.now() - start;
        })""", text)
    assert milliseconds < 2500


def test_a_growing_text_renders_as_the_whole_one_and_keeps_finished_blocks(page):
    text = "# A\n\npara *em* `c`\n\n- a\n  - b\n- c\n\n```js\nlet x = 1;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n1. x\n\n   y\n2. z\n\nend **bold** text"
    kept, equal = page.run("""
        return import('/assets/markdown.js').then(({ MarkdownView }) => {
            const growing = document.createElement('div'), view = new MarkdownView(growing);
            let first = null;
            for (let end = 1; end <= arguments[0].length; end += 1) {
                view.set(arguments[0].slice(0, end));
                if (end === 10) first = growing.firstChild;
            }
            const whole = document.createElement('div');
            new MarkdownView(whole).set(arguments[0]);
            return [growing.firstChild === first, growing.innerHTML === whole.innerHTML];
        })""", text)
    assert kept and equal


def test_stop_keeps_the_text_and_disconnects(page, stub):
    stub.answer, stub.pause = "word " * 400, 0.02
    send(page, "Long")
    page.wait("return document.querySelector('.running .answer')?.innerText.length > 20")
    page.press("Escape")
    finished(page)
    kept = last_answer(page)
    assert kept.startswith("word word") and page.text(".stopped") == "Stopped."
    end = time.monotonic() + 5
    while not stub.disconnected and time.monotonic() < end:
        time.sleep(0.05)
    assert stub.disconnected == 1
    page.run("location.reload()")
    page.wait("return document.querySelector('#history .open')")
    page.click("#history .open")
    assert last_answer(page) == kept


def test_a_lost_connection_keeps_the_text_and_can_be_tried_again(page, stub):
    stub.answer, stub.cut = "This text is cut in the middle.", 4
    send(page, "Go")
    finished(page)
    assert last_answer(page).startswith("This text")
    assert "The connection was lost." in page.text(".failure") and "kept" in page.text(".failure")
    stub.cut = None
    page.click(".failure button")
    page.wait("return document.querySelector('.versions')?.innerText.includes('2 / 2')")
    assert last_answer(page) == "This text is cut in the middle."
    page.click("[aria-label='Previous answer']")
    assert "The connection was lost." in page.text(".failure")


@pytest.mark.parametrize("status, headers, message, shown", [
    (429, [("Retry-After", "7")], "the queue of 64 requests is full", ["The server is busy.", "The queue of 64", "Try again (7 s)"]),
    (503, [], "the model is loading", ["The server cannot answer now.", "The model is loading"]),
    (400, [], "temperature must not be negative", ["The server refused the request.", "Temperature must not be negative"]),
    (500, [], "<img src=x onerror=alert(1)>", ["The server failed.", "<img src=x onerror=alert(1)>"]),
])
def test_a_refusal_is_shown_plainly_and_can_be_tried_again(page, stub, status, headers, message, shown):
    stub.failures = [(status, headers, {"error": {"message": message}})]
    send(page, "Hello")
    finished(page)
    for part in shown:
        assert part in page.text(".failure")
    page.run("document.querySelector('.failure button').click()")
    page.wait("return !document.querySelector('.failure') && document.querySelector('.assistant .stats')")
    assert last_answer(page) == "Hello there."


def test_a_question_without_an_answer_joins_the_next_one(page, stub):
    stub.failures = [(503, [], {"error": {"message": "no"}})]
    send(page, "One")
    finished(page)
    send(page, "Two")
    finished(page, 2)
    assert stub.requests[-1]["messages"] == [{"role": "user", "content": "One\n\nTwo"}]


def test_an_error_inside_of_a_stream_keeps_the_text(page, stub):
    stub.stream_error = "out of memory"
    send(page, "Hello")
    finished(page)
    assert last_answer(page) == "Hello there."
    assert "Out of memory" in page.text(".failure")


def test_a_server_that_is_gone_is_said_to_be_gone(page, stub):
    stub.close()
    send(page, "Hello")
    finished(page)
    assert "The server cannot be reached." in page.text(".failure")
    page.wait("return document.querySelector('#health').innerText === 'Not reachable'")


def test_an_api_key_is_asked_for_and_sent(window, stub):
    stub.key = "secret"
    window.open(stub.url + "/")
    window.wait("return document.querySelector('#model').innerText.includes('key')")
    send(window, "Hello")
    window.wait("return document.querySelector('#settings').open")
    assert "API key" in window.text("#settings-note")
    window.type("[name=api_key]", "secret")
    window.click("#settings .main-button")
    window.wait("return !document.querySelector('#settings').open && !document.querySelector('#model').disabled")
    window.run("[...document.querySelectorAll('.failure button')].at(-1).click()")
    window.wait("return document.querySelector('.assistant .stats')")
    assert window.run("return ['hesper.api-key' in sessionStorage, JSON.stringify({...localStorage}).includes('secret')]") == [True, False]


def test_settings_are_sent_and_kept(page, stub):
    page.press("Control", ",")
    page.wait("return document.querySelector('#settings').open")
    page.type("[name=system]", "Be brief.")
    page.type("[name=temperature]", "0.7")
    page.type("[name=seed]", "5")
    page.type("[name=stop]", "END")
    page.click("#settings .main-button")
    page.run("location.reload()")
    page.wait("return !document.querySelector('#model').disabled")
    page.run("const m = document.querySelector('#model'); m.value = 'demo'; m.dispatchEvent(new Event('change'))")
    ask(page, stub, "Yes.")
    request = stub.requests[0]
    assert request["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (request["temperature"], request["seed"], request["model"]) == (0.7, 5, "demo")
    assert request["stop"] == ["END"]
    # A value that is out of range keeps the dialog open.
    page.press("Control", ",")
    page.run("document.querySelector('[name=top_p]').value = '7'")
    page.click("#settings .main-button")
    assert page.run("return document.querySelector('#settings').open && document.querySelector('[name=top_p]').matches(':invalid')")
    page.press("Escape")


def test_history_holds_conversations_that_can_be_searched_and_deleted(page, stub):
    for question in ["About apples", "About pears"]:
        page.press("Alt", "n")
        ask(page, stub, f"{question} indeed.", question)
    titles = "return [...document.querySelectorAll('#history .open')].map((each) => each.innerText)"
    assert page.run(titles) == ["About pears", "About apples"]
    page.press("Control", "k")
    page.type("#search", "apples ind")
    assert page.run(titles) == ["About apples"]
    page.press("Enter")
    assert last_answer(page) == "About apples indeed."
    page.run("const s = document.querySelector('#search'); s.value = ''; s.dispatchEvent(new Event('input'))")
    page.run("document.querySelector('[aria-label=\"Delete About apples\"]').click()")
    assert page.run(titles) == ["About pears"]
    page.click("#toast button")
    assert page.run(titles) == ["About pears", "About apples"]
    page.run("location.reload()")
    page.wait("return document.querySelectorAll('#history .open').length === 2")


def test_a_message_can_be_edited_and_an_answer_generated_again(page, stub):
    ask(page, stub, "First.", "Question one")
    stub.answer = "Second."
    page.click("[aria-label='Generate again']")
    page.wait("return document.querySelector('.versions')?.innerText.includes('2 / 2')")
    assert last_answer(page) == "Second."
    page.click("#prompt")
    page.press("ArrowUp")
    page.run("document.querySelector('.editor textarea').select()")
    page.type(".editor textarea", "Question two")
    page.press("Enter")
    finished(page)
    assert page.text(".bubble") == "Question two"
    assert stub.requests[-1]["messages"] == [{"role": "user", "content": "Question two"}]
    assert page.text("#history .open") == "Question two"


def test_reasoning_is_folded_away(page, stub):
    stub.reasoning = "Let me think about it."
    ask(page, stub, "The answer.")
    assert page.run("return [document.querySelector('.reasoning').open, document.querySelector('.reasoning .md').textContent]") == [False, "Let me think about it."]


def test_shift_enter_is_a_new_line_and_an_empty_prompt_is_not_sent(page, stub):
    page.press("Enter")
    page.type("#prompt", "a")
    page.press("Shift", "Enter")
    page.type("#prompt", "b")
    assert stub.requests == []
    page.run("location.reload()")
    page.wait("return document.querySelector('#prompt').value === 'a\\nb'")
    page.wait("return !document.querySelector('#model').disabled")
    page.click("#prompt")
    page.press("Enter")
    finished(page)
    assert stub.requests[0]["messages"][0]["content"] == "a\nb"


def test_code_is_copied_as_it_was_written(page, stub):
    ask(page, stub, "```make\nall:\n\tcc <x> && y\n```")
    page.devtools("Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"], origin=stub.url)
    page.click("[data-copy]")
    page.wait("return document.querySelector('[data-copy]').innerText === 'Copied'")
    assert page.run("return navigator.clipboard.readText()") == "all:\n\tcc <x> && y"


def test_colours_follow_the_system_until_chosen(page, stub):
    colour = "return getComputedStyle(document.body).backgroundColor"
    light = page.run(colour)
    page.colours("dark")
    dark = page.run(colour)
    assert dark != light
    page.click("#theme")
    assert page.run(colour) == light
    page.run("location.reload()")
    page.wait("return !document.querySelector('#model').disabled")
    assert page.run(colour) == light
    page.click("#theme")
    page.colours("light")
    assert page.run(colour) == dark


def test_storage_with_rubbish_or_full_does_not_stop_the_page(page, stub):
    page.run("""
        localStorage.setItem('hesper.conversation.a', '{"id":"a"');
        localStorage.setItem('hesper.conversation.b', '{"id":"b","title":"t","updated":1,"messages":[{"role":"assistant","versions":[],"shown":3}]}');
        localStorage.setItem('hesper.settings', '[1]');
        localStorage.setItem('fill', 'x'.repeat(5 * 1024 * 1024 - 1500));
        location.reload()""")
    page.wait("return !document.querySelector('#model').disabled")
    assert page.text("#history .none") is not None
    ask(page, stub, "Still here. " * 300)
    assert "storage is full" in page.text("#toast")
    assert last_answer(page).startswith("Still here.")


def test_every_control_has_a_name(page, stub):
    ask(page, stub, "```\ncode\n```\n\n| a | b |\n|---|---|\n| c | d |")
    nameless = page.run("""
        return [...document.querySelectorAll('button, input, textarea, select, a, [role=img], img')]
            .filter((each) => !(each.getAttribute('aria-label') ?? each.labels?.[0]?.innerText ?? each.getAttribute('alt') ?? each.textContent).trim()
                && each.getAttribute('alt') !== '')
            .map((each) => each.outerHTML)""")
    assert nameless == []
    ids = page.run("return [...document.querySelectorAll('[id]')].map((each) => each.id)")
    assert len(ids) == len(set(ids))


def test_the_page_fits_a_phone(driver, stub):
    phone = Browser(driver, width=360, height=740, phone=True)
    try:
        phone.open(stub.url + "/")
        phone.wait("return !document.querySelector('#model').disabled")
        stub.answer = "| a | b | c | d |\n|---|---|---|---|\n| " + " | ".join(["a long cell here"] * 4) + " |\n\n```\n" + "x" * 300 + "\n```\n" + "y" * 300
        phone.type("#prompt", "Wide")
        phone.click("#send")
        finished(phone)
        assert phone.run("return document.documentElement.scrollWidth <= innerWidth && document.querySelector('#scroll').scrollWidth <= innerWidth")
        hidden = "return getComputedStyle(document.querySelector('#sidebar')).visibility"
        assert phone.run(hidden) == "hidden"
        phone.click("#menu")
        phone.wait(hidden + " === 'visible'")
        phone.wait("return document.querySelector('#sidebar').getBoundingClientRect().left === 0")
        phone.click("#history .open")
        phone.wait(hidden + " === 'hidden'")
        phone.open(stub.url + "/inspect")
        phone.wait("return document.querySelector('#problem')")
        assert phone.run("return document.documentElement.scrollWidth <= innerWidth")
    finally:
        phone.close()


@pytest.fixture
def inspect(window, stub):
    start = time.monotonic()
    stub.snapshot = lambda: snapshot(int(time.monotonic() - start))
    window.open(stub.url + "/inspect")
    window.wait("return document.querySelectorAll('#requests tr').length === 9")
    window.log()
    return window


def test_inspect_shows_requests_pages_plots_and_failures(inspect, stub):
    phases = inspect.run("return [...document.querySelectorAll('.phase')].map((each) => each.innerText)")
    assert phases.count("decode") == 6 and set(phases) == {"decode", "prefill", "queued", "preempted"}
    assert "of 1024" in inspect.text("#pages-text")
    assert "logits of token 12 are not finite <b>" in inspect.text("#failures")
    assert inspect.text("#health") == "Ready"
    inspect.wait("return document.querySelectorAll('#throughput path').length === 3 && document.querySelectorAll('#latency path').length === 3")
    assert inspect.run("return document.querySelectorAll('#first rect').length") == 9
    # Pages of requests are coloured, the last one is free.
    used, free = inspect.run("""
        const canvas = document.querySelector('#pages'), context = canvas.getContext('2d');
        const at = (page) => {
            const columns = Math.floor(canvas.clientWidth / 12);
            return [...context.getImageData((page % columns) * 12 + 3, Math.floor(page / columns) * 12 + 3, 1, 1).data];
        };
        return [at(8), at(1023)]""")
    assert used != free and used[3] == 255
    assert [line for line in inspect.log() if "willReadFrequently" not in line] == []


def test_inspect_cancels_a_request(inspect, stub):
    inspect.click("#requests button")
    end = time.monotonic() + 5
    while not stub.cancelled and time.monotonic() < end:
        time.sleep(0.05)
    assert stub.cancelled == [stub.snapshot()["requests"][0]["id"]]


def test_inspect_tells_the_state_of_a_loop_that_hangs_and_of_a_server_that_is_gone(inspect, stub):
    stub.health = (503, {"status": "stalled", "seconds": 42.0})
    inspect.wait("return document.querySelector('#health').innerText === 'Stalled: for 42 s'")
    stub.health = (503, {"status": "lost_device", "cause": "illegal address"})
    inspect.wait("return document.querySelector('#health').innerText === 'Device lost: illegal address'")
    stub.close()
    inspect.wait("return document.querySelector('#health').innerText === 'Not reachable'")
    inspect.wait("return document.querySelector('#problem').innerText.includes('cannot be reached')")


def test_inspect_draws_an_empty_engine_and_one_with_many_pages(inspect, stub):
    histogram = {"bounds": [], "counts": [], "sum": 0.0}
    state = {**snapshot(), "requests": [], "recent_failures": [], "pages": 0, "pages_used": 0, "pages_cached": 0, "uptime_seconds": 0.1}
    stub.snapshot = {**state, **{name: histogram for name in ("time_to_first_token", "inter_token", "request_seconds", "queue_seconds")}}
    inspect.wait("return document.querySelector('#requests').innerText.includes('No request')")
    stub.snapshot = {**snapshot(), "pages": 2_000_000, "uptime_seconds": 1000.0}
    inspect.wait("return document.querySelector('#page-under').innerText.includes('stands for')")
    assert inspect.run("return document.querySelector('#pages').height") < 2000
    assert inspect.log() == []


def test_files_of_the_page_name_no_other_host():
    for file in PAGE.iterdir():
        assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)[a-z]", file.read_text()), file.name
