"""Which client objects are accepted, and the client of luagate's own that is made from one.

luagate's calls use connections of their own, with the settings of the caller's client. They never retry, and each attempt has a
timeout, whatever the caller's client has. So a call to a silent server ends, and the caller's pool is never exhausted.
"""

import copy
import inspect
from collections.abc import Sequence
from typing import Any

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.backoff
import redis.retry
from luagate.errors import Invalid

SYNC = (redis.Redis, redis.RedisCluster)
ASYNC = (redis.asyncio.Redis, redis.asyncio.RedisCluster)
# Settings that belong to the caller's pool, or that a pool adds by itself.
NOT_COPIED = ("maint_notifications", "oss_cluster", "orig_", "himport_", "event_dispatcher", "connection_pool", "cache")


def check(client: Any, accepted: Sequence[type], other: Sequence[type], hint: str) -> None:
    """Refuses other kinds of clients."""
    kinds = "redis.Redis, the master of a redis.Sentinel, or redis.RedisCluster"
    if accepted is ASYNC:
        kinds = kinds.replace("redis.", "redis.asyncio.")
    if type(client).__module__.partition(".")[0] == "fakeredis":
        instead = "Start a Redis or Valkey server for tests too"
        raise Invalid(f"client: got a {_name(client)}, whose scripts have no `struct`. Accepted: {kinds}. {instead}")
    if isinstance(client, tuple(other)):
        raise Invalid(f"client: got a {_name(client)}. Accepted: {kinds}. {hint}")
    if not isinstance(client, tuple(accepted)) or isinstance(client, (redis.client.Pipeline, redis.asyncio.client.Pipeline)):
        from_url = f"{kinds.partition(',')[0]}.from_url(url)"
        raise Invalid(f"client: got {client if client is None else _name(client)}. Accepted: {kinds}, as of {from_url}")


def _name(client: Any) -> str:
    kind = type(client)
    return f"{kind.__module__}.{kind.__qualname__}"


def is_cluster(client: Any) -> bool:
    return isinstance(client, (redis.RedisCluster, redis.asyncio.RedisCluster))


def own(client: Any, timeout: float, **more: Any) -> Any:
    """A client of the same kind, with connections of its own. In seconds: the timeout of one attempt. `more`: settings."""
    if is_cluster(client):
        return _cluster(client, timeout)
    mine = copy.copy(client)
    mine.connection_pool = _pool(client.connection_pool, timeout, more or {"protocol": 2})  # nothing here needs RESP3
    mine.auto_close_connection_pool = True
    mine.connection, mine.single_connection_client, mine._single_connection_client = None, False, False
    return mine


def of_node(cluster: Any, host: str, port: int) -> Any:
    """A client of one node of a cluster that `own` has made."""
    if not isinstance(cluster, redis.asyncio.RedisCluster):
        return cluster.get_redis_connection(cluster.get_node(host, port))
    settings: dict[str, Any] = dict(cluster.get_connection_kwargs())
    for name in ("response_callbacks", "parser_class", "max_connections"):
        settings.pop(name, None)
    settings.update(host=host, port=port)
    return redis.asyncio.Redis(connection_pool=redis.asyncio.ConnectionPool(**settings))


def _pool(pool: Any, timeout: float, more: dict[str, Any]) -> Any:
    is_async = isinstance(pool, redis.asyncio.ConnectionPool)
    settings = _settings(pool.connection_kwargs, timeout, is_async)
    settings.update(more, connection_class=pool.connection_class)
    if not hasattr(pool, "sentinel_manager"):
        kind = redis.asyncio.ConnectionPool if is_async else redis.ConnectionPool
        return kind(max_connections=2**31, **settings)
    manager = copy.copy(pool.sentinel_manager)
    sentinels = manager.sentinels  # redis-py reads their replies as its version of the protocol gives them
    manager.sentinels = [own(one, timeout, protocol=_protocol(one)) for one in sentinels]
    return type(pool)(
        pool.service_name, manager, is_master=pool.is_master, check_connection=pool.check_connection,
        max_connections=2**31, **settings,
    )  # fmt: skip


def _protocol(client: Any) -> Any:
    return client.connection_pool.connection_kwargs.get("protocol")


def _cluster(client: Any, timeout: float) -> Any:
    manager = client.nodes_manager
    known = [*manager.startup_nodes.values(), *manager.nodes_cache.values()]
    is_async = isinstance(client, redis.asyncio.RedisCluster)
    settings = _settings(client.get_connection_kwargs(), timeout, is_async)
    for name in ("retry_on_timeout", "retry_on_error", "host", "port"):
        settings.pop(name, None)
    if is_async:
        accepted = inspect.signature(redis.asyncio.RedisCluster.__init__).parameters
        if settings.get("connection_class") is redis.asyncio.SSLConnection:
            settings["ssl"] = True
        settings = {name: value for name, value in settings.items() if name in accepted}
    else:
        settings["redis_connect_func"] = client.user_on_connect_func
    nodes = list({node.name: type(node)(node.host, node.port) for node in known}.values())
    settings.update(startup_nodes=nodes, require_full_coverage=False, address_remap=manager.address_remap, protocol=2)
    mine = type(client)(**settings)
    mine.cluster_error_retry_attempts = 0  # redis-py 5 ignores `retry` for this
    return mine


def _settings(settings: dict[str, Any], timeout: float, is_async: bool) -> dict[str, Any]:
    """The settings of a connection: those of the caller, without retries and with a timeout."""
    mine = {name: value for name, value in settings.items() if not name.startswith(NOT_COPIED)}
    for name in ("socket_timeout", "socket_connect_timeout"):
        mine[name] = min(mine.get(name) or timeout, timeout)
    kind: Any = redis.asyncio.retry.Retry if is_async else redis.retry.Retry
    mine.update(retry=kind(redis.backoff.NoBackoff(), 0), retry_on_timeout=False, retry_on_error=[], health_check_interval=0)
    mine.pop("max_connections", None)
    return mine
