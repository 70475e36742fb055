"""Traces of a web request. Argument: whether redis-py is patched before or after luagate is imported."""

import asyncio
import os
import sys

from opentelemetry import trace
from opentelemetry.instrumentation.redis import RedisInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("program")

when = sys.argv[1]
if when == "before":
    RedisInstrumentor().instrument()

import luagate  # noqa: E402
import luagate.aio  # noqa: E402
import redis  # noqa: E402
import redis.asyncio  # noqa: E402

if when == "after":
    RedisInstrumentor().instrument()


def check(name):
    """Each call of the request is a span below it: at least one to acquire, and one to release."""
    finished = spans.get_finished_spans()
    request = next(span for span in finished if span.name == name)
    below = [span for span in finished if span.parent and span.parent.span_id == request.context.span_id]
    calls = [span for span in below if span.name in ("EVAL", "EVALSHA")]
    assert len(calls) >= 2, [(span.name, span.parent) for span in finished]


gate = luagate.Luagate(redis.Redis.from_url(os.environ["REDIS_URL"]), when)
with tracer.start_as_current_span("threads"), gate.mutex("m").acquire(timeout=5):
    assert gate.mutex("m").inspect().in_use == 1
check("threads")
assert gate.mutex("m").inspect().in_use == 0
gate.close()


async def main():
    gate = luagate.aio.Luagate(redis.asyncio.Redis.from_url(os.environ["REDIS_URL"]), when)
    with tracer.start_as_current_span("asyncio"):
        async with gate.mutex("m").acquire(timeout=5):
            assert (await gate.mutex("m").inspect()).in_use == 1
    check("asyncio")
    assert (await gate.mutex("m").inspect()).in_use == 0
    await gate.close()


asyncio.run(main())
