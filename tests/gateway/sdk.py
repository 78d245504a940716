"""Drives the real OpenAI SDK: sdk.py BASE_URL embed|chat|status. Prints one JSON object."""

import json
import sys

import openai

base_url, task = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key="test", timeout=20)
if task == "embed":
    texts = ["one two three", "four"]
    plain = client.embeddings.create(model="m", input=texts)
    floats = client.embeddings.create(model="m", input=texts, encoding_format="float")
    said = {
        "model": plain.model,
        "vectors": [item.embedding for item in plain.data],
        "floats": [item.embedding for item in floats.data],
        "tokens": plain.usage.total_tokens,
    }
elif task == "chat":
    stream = client.chat.completions.create(
        model="m",
        messages=[{"role": "user", "content": "hello there"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    said = {"chunks": 0, "text": "", "tokens": None}
    for chunk in stream:
        said["chunks"] += 1
        said["text"] += "".join(choice.delta.content or "" for choice in chunk.choices)
        if chunk.usage:
            said["tokens"] = chunk.usage.total_tokens
else:
    try:
        client.embeddings.create(model="m", input="a")
        said = {"status": 200, "code": None}
    except openai.APIStatusError as error:
        said = {"status": error.status_code, "code": error.code}
print(json.dumps(said))
