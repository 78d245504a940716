"""Evaluates flags of a file with flagd's own evaluator; one line of JSON now, and one at each change."""

import json
import sys
import time

from openfeature import api
from openfeature.contrib.provider.flagd import FlagdProvider
from openfeature.contrib.provider.flagd.config import ResolverType

api.set_provider_and_wait(
    FlagdProvider(
        resolver_type=ResolverType.FILE,
        offline_flag_source_path=sys.argv[1],
        deadline_ms=100,
    )
)
client = api.get_client()


def look():
    asked = {
        "retry.max_attempts": client.get_integer_details("weir.retry.max_attempts", -1),
        "admission.mode": client.get_string_details("weir.admission.mode", "?"),
        "cache.enabled": client.get_boolean_details("weir.cache.enabled", False),
        "queue.max_age_s": client.get_float_details("weir.queue.max_age_s", -1.0),
        "admission.rate_factor": client.get_float_details("weir.admission.rate_factor", -1.0),
        "new-checkout": client.get_boolean_details("new-checkout", True),
    }
    return {
        key: [details.value, details.variant, details.flag_metadata.get("weir.by")]
        for key, details in asked.items()
    }


said = None
while True:
    seen = look()
    if seen != said:
        print(json.dumps(seen), flush=True)
        said = seen
    time.sleep(0.05)
