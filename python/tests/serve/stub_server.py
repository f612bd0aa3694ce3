"""A server for tests of the page: serves its files, and answers the API as told, slowly or badly."""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGE = Path(__file__).parents[3] / "crates" / "hesper-serve" / "page"
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Stub:
    """The behaviour of the server: set the attributes while it runs."""

    def __init__(self):
        self.answer = "Hello **there**."
        self.reasoning = ""
        self.pause = 0.0
        self.key = None
        # (status, headers, body) of the next requests for an answer, before it works again.
        self.failures = []
        # Cut the connection after this many pieces.
        self.cut = None
        self.stream_error = None
        self.finish = "stop"
        self.health = (200, {"status": "ok"})
        self.snapshot = {}
        self.requests = []
        self.cancelled = []
        self.disconnected = 0
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def pieces(text):
    """A text cut as a tokenizer might: inside of words and of Markdown's marks."""
    return [part for word in re.findall(r"\s*\S+|\s+$", text) for part in (word[:5], word[5:]) if part]


def handler(stub):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def reply(self, status, body, kind="application/json", headers=()):
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            # A connection that is kept would be answered after the server is closed.
            self.send_header("Connection", "close")
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def allowed(self):
            if stub.key is None or self.headers.get("Authorization") == f"Bearer {stub.key}":
                return True
            self.reply(401, {"error": {"message": "invalid API key"}})
            return False

        def do_GET(self):
            name = {"/": "index.html", "/inspect": "inspect.html"}.get(self.path, self.path.removeprefix("/assets/"))
            if self.path == "/health":
                self.reply(*stub.health)
            elif self.path == "/v1/models":
                if self.allowed():
                    self.reply(200, {"data": [{"id": "smollm2-135m-instruct"}, {"id": "demo"}]})
            elif self.path == "/inspect/data":
                if self.allowed():
                    self.reply(200, stub.snapshot() if callable(stub.snapshot) else stub.snapshot)
            elif "/" not in name and (PAGE / name).is_file():
                policy = (PAGE / "content-security-policy.txt").read_text().strip()
                headers = [("Content-Security-Policy", policy), ("X-Content-Type-Options", "nosniff")]
                self.reply(200, (PAGE / name).read_bytes(), TYPES[Path(name).suffix], headers)
            else:
                self.reply(404, {"error": {"message": f"nothing at {self.path}"}})

        def do_POST(self):
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if not self.allowed():
                return
            if self.path.endswith("/cancel"):
                stub.cancelled.append(self.path.split("/")[-2])
                self.reply(200, {"cancelled": True})
                return
            stub.requests.append(json.loads(body))
            if stub.failures:
                status, headers, document = stub.failures.pop(0)
                self.reply(status, document, headers=headers)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            try:
                self.stream()
            except OSError:
                stub.disconnected += 1

        def event(self, document):
            self.wfile.write(f"data: {json.dumps(document)}\n\n".encode())
            self.wfile.flush()

        def stream(self):
            self.wfile.write(b": keep-alive\n\n")
            deltas = [{"reasoning_content": piece} for piece in pieces(stub.reasoning)]
            deltas += [{"content": piece} for piece in pieces(stub.answer)]
            for at, delta in enumerate(deltas):
                if stub.cut == at:
                    return
                time.sleep(stub.pause)
                self.event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
            if stub.stream_error:
                self.event({"error": {"message": stub.stream_error}})
                return
            self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": stub.finish}]})
            usage = {"prompt_tokens": 40, "completion_tokens": len(deltas), "prompt_tokens_details": {"cached_tokens": 32}}
            self.event({"choices": [], "usage": usage})
            self.wfile.write(b"data: [DONE]\n\n")

    return Handler


def snapshot(step=0, running=9):
    """A state of the engine at a step, with requests in all phases."""
    bounds = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0]
    shape = [0, 2, 9, 31, 44, 22, 12, 5, 2, 1, 0]
    wobble = (step * 7) % 5 * 35

    def histogram(scale, counts=shape):
        counts = [count * (step + 3) * scale for count in counts]
        return {"bounds": bounds, "counts": counts, "sum": 1.0}

    requests = []
    page = 0
    for at in range(running):
        phase = "prefill" if at == running - 3 else "queued" if at == running - 2 else "preempted" if at == running - 1 else "decode"
        count = 0 if phase in ("queued", "preempted") else 9 + (at * 13) % 31
        shared = [0, 1, 2, 3] if count and at in (0, 2, 4) else []
        page = max(page, 4) + 3
        own = [page + each + each // 7 for each in range(count)]
        page += count + count // 7
        prompt = 260 + 97 * at
        requests.append({
            "id": f"req-{at * 7919 % 997:03x}a{at}", "phase": phase, "prompt_tokens": prompt,
            "computed_tokens": prompt if phase == "decode" else prompt // 3 if count else 0,
            "generated_tokens": (step + 5) * 9 + at * 11 if phase == "decode" else 0,
            "pages": shared + own, "seconds": 0.4 + 1.3 * at + step,
        })
    used = len({each for request in requests for each in request["pages"]})
    return {
        "accepted": 412 + step, "refused": 3, "completed": 396 + step, "failed": 1, "cancelled": 6, "preemptions": 2, "restarts": 0,
        "steps": 9000 + 40 * step, "step_seconds": 118.0 + 0.97 * step, "scheduler_seconds": 1.9 + 0.011 * step,
        "prompt_tokens": 61_000 + 180 * step + 2 * wobble, "cached_tokens": 84_000 + 310 * step,
        "generated_tokens": 52_000 + 470 * step + wobble, "page_tokens": 32, "page_bytes": 1_474_560,
        "pages": 1024, "pages_used": used, "pages_cached": 240, "requests": requests,
        "recent_failures": [[31.0, "req-77c", "logits of token 12 are not finite <b>"]], "uptime_seconds": 131.0 + step,
        "time_to_first_token": histogram(1), "inter_token": histogram(40, [0, 20, 60, 15, 4, 1, 0, 0, 0, 0, 0]),
        "request_seconds": histogram(1), "queue_seconds": histogram(1),
    }
