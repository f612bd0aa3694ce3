"""Measures llama.cpp as `hesper bench` measures Hesper, and compares them.

    python llama.py MODEL.gguf [--hesper target/release/hesper] [--threads 2] [--runs 3]

Needs the package llama-cpp-python. Three lines: the prefill of a prompt of 512 tokens, decoding after it, and
16 sequences decoded together after prompts of 32 tokens.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import time

import llama_cpp as lc


class Llama:
    def __init__(self, path, threads, context=8192, sequences=16, plain=True):
        lc.llama_backend_init()
        self.quiet = lc.llama_log_callback(lambda level, text, data: None)
        lc.llama_log_set(self.quiet, ctypes.c_void_p(0))
        params = lc.llama_model_default_params()
        # Some virtual machines announce AMX and trap when it is used.
        params.use_extra_bufts = not plain
        self.model = lc.llama_load_model_from_file(path.encode(), params)
        assert self.model, path
        settings = lc.llama_context_default_params()
        settings.n_ctx = context
        settings.n_batch = settings.n_ubatch = 512
        settings.n_seq_max = sequences
        settings.n_threads = settings.n_threads_batch = threads
        settings.kv_unified = True
        self.context = lc.llama_new_context_with_model(self.model, settings)
        assert self.context
        self.vocabulary = lc.llama_n_vocab(lc.llama_model_get_vocab(self.model))
        self.batch = lc.llama_batch_init(512, 0, 1)

    def clear(self):
        lc.llama_memory_clear(lc.llama_get_memory(self.context), True)

    def run(self, entries):
        """Entries of (token, position, sequence, whether its logits are needed)."""
        self.batch.n_tokens = len(entries)
        for at, (token, position, sequence, logits) in enumerate(entries):
            self.batch.token[at] = token
            self.batch.pos[at] = position
            self.batch.n_seq_id[at] = 1
            self.batch.seq_id[at][0] = sequence
            self.batch.logits[at] = logits
        assert lc.llama_decode(self.context, self.batch) == 0

    def best(self, at):
        import numpy as np

        logits = lc.llama_get_logits_ith(self.context, at)
        return int(np.ctypeslib.as_array(logits, shape=(self.vocabulary,)).argmax())


def measure(llama, prompt=512, tokens=128, sequences=16):
    vocabulary = llama.vocabulary
    ids = [(at * 7919 + 13) % vocabulary for at in range(prompt)]
    llama.clear()
    start = time.perf_counter()
    llama.run([(token, at, 0, at == prompt - 1) for at, token in enumerate(ids)])
    last = llama.best(prompt - 1)
    prefill = prompt / (time.perf_counter() - start)
    start = time.perf_counter()
    for at in range(tokens):
        llama.run([(last, prompt + at, 0, True)])
        last = llama.best(0)
    decoding = tokens / (time.perf_counter() - start)
    llama.clear()
    lasts = []
    for sequence in range(sequences):
        ids = [(at * 104_729 + sequence * 31 + 5) % vocabulary for at in range(32)]
        llama.run([(token, at, sequence, at == 31) for at, token in enumerate(ids)])
        lasts.append(llama.best(31))
    count = min(tokens, 64)
    start = time.perf_counter()
    for at in range(count):
        llama.run([(lasts[sequence], 32 + at, sequence, True) for sequence in range(sequences)])
        lasts = [llama.best(sequence) for sequence in range(sequences)]
    together = sequences * count / (time.perf_counter() - start)
    return prefill, decoding, together


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--hesper")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--extra", action="store_true", help="let llama.cpp repack weights and use AMX")
    args = parser.parse_args()
    llama = Llama(args.model, args.threads, plain=not args.extra)
    theirs = [measure(llama) for _ in range(args.runs)]
    lc.llama_free(llama.context)
    lines = ["prompt", "decode", "batch"]
    theirs = {line: [run[at] for run in theirs] for at, line in enumerate(lines)}
    ours = None
    if args.hesper:
        command = [args.hesper, "bench", "--model", args.model, "--json", "--runs", str(args.runs)]
        environment = {**os.environ, "HESPER_THREADS": str(args.threads)}
        ours = json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    for line in lines:
        median, best = statistics.median(theirs[line]), max(theirs[line])
        text = f"{line:8} llama.cpp {median:7.1f} (best {best:7.1f})"
        if ours:
            own, top = ours[line]["tokens_per_second"], ours[line]["best_tokens_per_second"]
            text += f"   hesper {own:7.1f} (best {top:7.1f})   ratio {own / median:5.2f} ({top / best:5.2f})"
        print(text)


if __name__ == "__main__":
    main()
