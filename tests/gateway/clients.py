"""Drives real clients: clients.py [CLIENT BASE_URL]... Of each one call with its own retries, unchanged, all
at once. Prints one JSON object each: whether it was answered, else the class and the words of what was
raised."""

import concurrent.futures
import json
import os
import sys

# No client asks anybody but the gateway.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
os.environ["LITELLM_TELEMETRY"] = "False"


def openai(base):
    import openai

    openai.OpenAI(base_url=f"{base}/v1", api_key="sk-x").embeddings.create(model="m", input="a")


def anthropic(base):
    import anthropic

    message = {"role": "user", "content": "a"}
    anthropic.Anthropic(base_url=base, api_key="sk-x").messages.create(model="m", max_tokens=8, messages=[message])


def langchain(base):
    from langchain_openai import OpenAIEmbeddings

    OpenAIEmbeddings(base_url=f"{base}/v1", api_key="sk-x", model="m", check_embedding_ctx_length=False).embed_query("a")


def llama_index(base):
    from llama_index.embeddings.openai import OpenAIEmbedding

    OpenAIEmbedding(api_base=f"{base}/v1", api_key="sk-x", max_retries=2).get_text_embedding("a")


def litellm(base):
    import litellm

    message = {"role": "user", "content": "a"}
    litellm.completion(model="openai/m", api_base=f"{base}/v1", api_key="sk-x", num_retries=2, messages=[message])


def litellm_router(base):
    from litellm import Router

    params = {"model": "openai/m", "api_base": f"{base}/v1", "api_key": "sk-x"}
    Router(model_list=[{"model_name": "m", "litellm_params": params}]).embedding(model="m", input=["a"])


CALLS = {
    "openai": openai,
    "anthropic": anthropic,
    "langchain": langchain,
    "llama-index": llama_index,
    "litellm": litellm,
    "litellm-router": litellm_router,
}


def called(client, base):
    try:
        CALLS[client](base)
    except Exception as error:
        return {"answered": False, "error": type(error).__name__, "words": str(error)}
    return {"answered": True, "error": None, "words": ""}


clients, bases = sys.argv[1::2], sys.argv[2::2]
with concurrent.futures.ThreadPoolExecutor(len(clients)) as pool:
    said = list(pool.map(called, clients, bases))
# Some libraries talk on standard output: what we say comes last, in one line.
print()
print(json.dumps(said))
