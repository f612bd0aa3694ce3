"""Takes the screenshots of the documents: python screenshots.py FOLDER [MODEL].

The chat is answered by a stub. The state of the engine is that of `hesper serve --model MODEL` under the load of
`hesper bench serve`; without MODEL its picture is left as it is. HESPER_PROGRAM names the program.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from browser import Browser, Driver
from stub_server import Stub

PROGRAM = Path(os.environ.get("HESPER_PROGRAM", Path(__file__).parents[3] / "target/debug/hesper"))

ANSWER = """Both keep the smallest element at hand; they differ in what the others cost.

| Operation | Binary heap | Sorted array |
|:----------|------------:|-------------:|
| peek      |      `O(1)` |       `O(1)` |
| push      |  `O(log n)` |       `O(n)` |
| pop       |  `O(log n)` |       `O(1)` |

A **heap** is the better default. In Rust it is part of the standard library:

```rust
use std::{cmp::Reverse, collections::BinaryHeap};

/// The `k` smallest elements, in rising order.
fn smallest(values: &[u32], k: usize) -> Vec<u32> {
    let mut heap: BinaryHeap<_> = values.iter().map(|&v| Reverse(v)).collect();
    (0..k).map_while(|_| heap.pop()).map(|Reverse(v)| v).collect()
}
```

Choose the sorted array if

1. there are **few** elements, say below 32,
2. or they are *read* far more often than they change.
"""


def chat(browser, stub):
    stub.answer = ANSWER
    browser.open(stub.url + "/")
    browser.wait("return document.querySelector('#model').value !== '' && !document.querySelector('#model').disabled")
    for title in ["Why is Venus called the evening star?", "Tidy up a shell script", "Names for a small telescope"]:
        stub.answer, answer = "Short.", stub.answer
        browser.run("document.querySelector('#new-chat').click()")
        browser.type("#prompt", title)
        browser.run("document.querySelector('#composer').requestSubmit()")
        browser.wait("return document.querySelector('.assistant .stats')")
        stub.answer = answer
    stub.pause = 0.008
    browser.run("document.querySelector('#new-chat').click()")
    browser.type("#prompt", "Compare a binary heap and a sorted array as a priority queue.")
    browser.run("document.querySelector('#composer').requestSubmit()")
    browser.wait("return document.querySelector('.assistant .stats')", seconds=30)
    stub.pause = 0
    browser.run("document.querySelector('#scroll').scrollTop = 0; document.querySelector('#to-end').hidden = true; document.activeElement.blur()")


def inspect(browser, model):
    """Opens the page of a server under load."""
    command = [PROGRAM, "serve", "--model", model, "--port", "0", "--kv-memory", "12", "--max-running", "24"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    url = next(word for word in server.stdout.readline().split() if word.startswith("http://"))
    load = [PROGRAM, "bench", "serve", "--url", url, "--clients", "32", "--prompt", "32:300", "--tokens", "24:160"]
    load += ["--shared-prefix", "100", "--disconnects", "0.1", "--seconds", "60"]
    load = subprocess.Popen(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    browser.open(url + "/inspect")
    return server, load


def main(folder, model=None):
    folder.mkdir(parents=True, exist_ok=True)
    driver, stub = Driver(), Stub()
    try:
        for name, options in [
            ("chat-light", dict(width=1280, height=1000)),
            ("chat-dark", dict(width=1280, height=1000, dark=True)),
            ("chat-phone", dict(width=390, height=844, phone=True)),
        ]:
            browser = Browser(driver, **options)
            chat(browser, stub)
            browser.screenshot(folder / f"{name}.png")
            browser.close()
        if model:
            browser = Browser(driver, width=1280, height=1240, dark=True)
            server, load = inspect(browser, model)
            # The plots need a history.
            time.sleep(45)
            browser.screenshot(folder / "inspect-dark.png")
            browser.close()
            load.kill()
            server.terminate()
            server.wait(60)
    finally:
        stub.close()
        driver.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
