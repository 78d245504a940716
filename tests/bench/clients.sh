#!/usr/bin/env bash
# Real client libraries beside their models in assets/clients: each makes one call to a simulated
# provider that always answers 503, and so does its model on the virtual clock; both attempts are
# printed. Fetches the libraries into a virtual environment unless PYTHON has them. Takes two minutes,
# most of it LlamaIndex waiting.
#
#     WEIR=target/debug/weir tests/bench/clients.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

WEIR=${WEIR:-target/debug/weir}
if [[ -z ${PYTHON:-} ]]; then
    venv=$(mktemp -d)
    trap 'rm -rf "$venv"' EXIT
    python3 -m venv "$venv"
    PYTHON=$venv/bin/python
    "$PYTHON" -m pip install --quiet openai langchain-core llama-index-embeddings-openai litellm tenacity
fi
"$PYTHON" - "$WEIR" <<'PYTHON'
import importlib, json, multiprocessing, os, socket, subprocess, sys, tempfile, time, urllib.request

WEIR = sys.argv[1]
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"


def embed(url, retries=2):
    import openai
    client = openai.OpenAI(api_key="sk-x", base_url=url, max_retries=retries)
    return client.embeddings.create(model="m", input="hello")


def with_retry(url):
    from langchain_core.runnables import RunnableLambda
    return RunnableLambda(lambda _: embed(url)).with_retry().invoke("hello")


def over_tenacity(url):
    import tenacity
    wait = tenacity.wait_random_exponential(min=1, max=20)
    return tenacity.Retrying(wait=wait, stop=tenacity.stop_after_attempt(6))(embed, url)


def llama_index(url, **more):
    from llama_index.embeddings.openai import OpenAIEmbedding
    return OpenAIEmbedding(api_key="sk-x", api_base=url, **more).get_text_embedding("hello")


def litellm(url):
    import litellm
    litellm.embedding(model="openai/m", api_base=url, api_key="sk-x", input=["hello"])


def litellm_router(url, **more):
    from litellm import Router
    params = {"model": "openai/m", "api_base": url, "api_key": "sk-x"}
    router = Router(model_list=[{"model_name": "m", "litellm_params": params}], **more)
    router.embedding(model="m", input=["hello"])


TENACITY = "use = 'tenacity-random'\n[[layers]]\nuse = 'openai-python'"
LLAMA = "llama_index.embeddings.openai"
TWO = "tries = 2\nwith = { openai-python = { tries = 3 } }"
# What it is, its model, what is imported before the clock starts, the call, and its keywords.
CALLS = [
    ("openai", "use = 'openai-python'", "openai", embed, {}),
    ("openai max_retries=5", "use = 'openai-python'\ntries = 6", "openai", embed, {"retries": 5}),
    ("langchain with_retry", "use = 'langchain-with-retry'", "langchain_core.runnables", with_retry, {}),
    ("tenacity over openai", TENACITY, "tenacity", over_tenacity, {}),
    ("llama-index", "use = 'llama-index'", LLAMA, llama_index, {}),
    ("llama-index max_retries=2", f"use = 'llama-index'\n{TWO}", LLAMA, llama_index, {"max_retries": 2}),
    ("litellm", "use = 'litellm'", "litellm", litellm, {}),
    ("litellm router", "use = 'litellm-router'", "litellm", litellm_router, {}),
    ("litellm router num_retries=3", "use = 'litellm-router'\ntries = 4", "litellm", litellm_router, {"num_retries": 3}),
]

PROVIDER = """
[provider]
requests = { per_minute = 60_000 }
tokens = { per_minute = 60_000_000 }
latency = { base_ms = 1, spread_ms = 0 }
steps = [{ at_s = 0, error_ratio = 1 }]
"""
# One call a second for ten seconds, then time for all of them to end.
SCENARIO = """
name = "one-client"
title = "a provider that always fails"
duration_s = 400
onset_s = 0
max_attempts_configured = 3
flags = { "admission.mode" = "off" }
%s
[traffic]
tokens = { min = 5, max = 5 }
steps = [{ name = "calls", at_s = 0, rate = 1 }, { name = "end", at_s = 10, rate = 0 }]
[[layers]]
%s
[expect]
cause = "nested-retries"
after_cure = "healthy"
"""


def modelled(layers):
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(SCENARIO % (PROVIDER, layers))
        file.flush()
        command = [WEIR, "drill", file.name, "--virtual", "--json"]
        ledger = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["ledger"]
    return ledger["attempts"] / ledger["originals"]


def called(number):
    _, _, module, call, more = CALLS[number]
    importlib.import_module("openai")
    importlib.import_module(module)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [WEIR, "provider", "--listen", address, "--script", "server_error:10000", "--exit-on-stdin-eof"]
    null = subprocess.DEVNULL
    provider = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=null, stderr=null)
    try:
        for _ in range(100):
            try:
                urllib.request.urlopen(f"http://{address}/ledger").read()
                break
            except OSError:
                time.sleep(0.1)
        began = time.monotonic()
        try:
            call(f"http://{address}/v1", **more)
        except Exception as error:
            why = type(error).__name__
        took = time.monotonic() - began
        ledger = json.loads(urllib.request.urlopen(f"http://{address}/ledger").read())
        return ledger["attempts"], took, why
    finally:
        provider.kill()


if __name__ == "__main__":
    # Each library in a process of its own, all at once: what takes time is their waiting.
    with multiprocessing.get_context("fork").Pool(len(CALLS)) as pool:
        real = pool.map(called, range(len(CALLS)), chunksize=1)
    print(f"{'client':<30}{'attempts':>9}{'model':>7}{'s':>8}  ends with")
    wrong = 0
    for (name, layers, *_), (attempts, took, why) in zip(CALLS, real):
        model = modelled(layers)
        wrong += model != attempts
        print(f"{name:<30}{attempts:>9}{model:>7g}{took:>8.1f}  {why}")
    sys.exit(f"{wrong} models differ" if wrong else 0)
PYTHON
