"""Three nodes. One stands still, while 100 permits on it are renewed: no permit on the other two is lost."""

import asyncio
import signal
import socket
import subprocess
import sys
import tempfile
import time

import luagate
import luagate.aio
import redis
import redis.asyncio

RENEWED, LEASE = 100, 5
STOPPED = 12  # seconds: more than two leases


def names(cluster, node, count):
    """Names of semaphores on this node."""
    found, number = [], 0
    while len(found) < count:
        name = f"n{number}"
        if cluster.get_node_from_key(f"luagate:semaphore:{{{name}}}").port == node:
            found.append(name)
        number += 1
    return found


def start(folder):
    """Starts the nodes. Returns their processes by port."""
    nodes = {}
    for _ in range(3):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            bus = free.getsockname()[1]
        command = ["redis-server", "--port", str(port), "--cluster-port", str(bus), "--bind", "127.0.0.1", "--save", ""]
        command += ["--cluster-enabled", "yes", "--cluster-config-file", f"{folder}/{port}.conf", "--dir", folder]
        command += ["--cluster-node-timeout", "60000", "--cluster-require-full-coverage", "no"]
        nodes[port] = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until(lambda: all(redis.Redis(port=port).ping() for port in nodes))
    addresses = [f"127.0.0.1:{port}" for port in nodes]
    subprocess.run(["redis-cli", "--cluster", "create", *addresses, "--cluster-yes"], check=True, stdout=subprocess.DEVNULL)
    until(lambda: all(redis.Redis(port=port).execute_command("CLUSTER INFO")["cluster_state"] == "ok" for port in nodes))
    return nodes


def until(holds):
    end = time.monotonic() + 60
    while True:
        try:
            if holds():
                return
        except redis.RedisError:
            pass
        assert time.monotonic() < end, "the cluster has not started"
        time.sleep(0.05)


def settings(name):
    return {"name": name, "limit": 1, "lease": LEASE, "auto_renew": True}


def with_threads(port, stopped, healthy, stop):
    gate = luagate.Luagate(redis.RedisCluster(host="127.0.0.1", port=port))
    gone = [gate.semaphore(**settings(name)).acquire(timeout=10) for name in stopped]
    kept = [gate.semaphore(**settings(name)).acquire(timeout=10) for name in healthy]
    stop()
    end = time.monotonic() + STOPPED
    while time.monotonic() < end:
        check(kept)
        time.sleep(0.1)
    gate.close()
    del gone


async def with_tasks(port, stopped, healthy, stop):
    gate = luagate.aio.Luagate(redis.asyncio.RedisCluster(host="127.0.0.1", port=port))
    gone = [await gate.semaphore(**settings(name)).acquire(timeout=10) for name in stopped]
    kept = [await gate.semaphore(**settings(name)).acquire(timeout=10) for name in healthy]
    stop()
    end = time.monotonic() + STOPPED
    while time.monotonic() < end:
        check(kept)
        await asyncio.sleep(0.1)
    await gate.close()
    del gone


def check(kept):
    lost = [permit for permit in kept if permit.is_lost]
    assert not lost, f"{len(lost)} of {len(kept)} permits on healthy nodes are lost"


with tempfile.TemporaryDirectory() as folder:
    nodes = start(folder)
    try:
        port, frozen, other = nodes
        cluster = redis.RedisCluster(host="127.0.0.1", port=port)
        stopped = names(cluster, frozen, RENEWED)
        healthy = names(cluster, port, 10) + names(cluster, other, 10)
        cluster.close()
        stop = lambda: nodes[frozen].send_signal(signal.SIGSTOP)  # noqa: E731
        if sys.argv[1] == "threads":
            with_threads(port, stopped, healthy, stop)
        else:
            asyncio.run(with_tasks(port, stopped, healthy, stop))
    finally:
        for node in nodes.values():
            node.kill()
            node.wait()
