"""Starts gunicorn with two workers of gevent, and asks them for 40 pages at once."""

import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

command = [sys.executable, "-m", "gunicorn", "--preload", "-k", "gevent", "-w", "2", "-b", "unix:socket", "application"]
server = subprocess.Popen([*command, "--log-level", "warning"])


def page(_):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        connection.connect("socket")
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with connection.makefile("rb") as reply:
            return reply.read()


try:
    end = time.monotonic() + 30
    while not os.path.exists("socket") and time.monotonic() < end:
        time.sleep(0.01)
    with ThreadPoolExecutor(40) as threads:
        pages = list(threads.map(page, range(40)))
    assert all(page.endswith(b"released") for page in pages), pages
finally:
    server.terminate()
    server.wait()
