"""The meaning of an error of `redis` for a call: whether it is repeated, and which error the caller gets."""

import json
import re

import redis
from luagate.errors import NoPermission
from luagate.scripts import OWN

# The reply to the call is lost, or there was no connection: the server may have run the call or not.
LOST_REPLY = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.exceptions.RedisClusterException,
    redis.exceptions.ClusterError,
    OSError,
    EOFError,
)
# What the errors of servers and proxies mean. The first row that fits counts; the last one fits all.
ROWS: list[dict[str, str]] = json.loads((OWN / "errors.json").read_text("utf-8"))["errors"]
# redis-py removes these codes from the texts of their errors.
CODES = {
    redis.BusyLoadingError: "LOADING",
    redis.ReadOnlyError: "READONLY",
    redis.OutOfMemoryError: "OOM",
    redis.AuthenticationError: "NOAUTH",
    redis.exceptions.AuthorizationError: "NOAUTH",
    redis.exceptions.NoPermissionError: "NOPERM",
    redis.exceptions.NoScriptError: "NOSCRIPT",
    redis.exceptions.TryAgainError: "TRYAGAIN",
    redis.exceptions.MovedError: "MOVED",
    redis.exceptions.AskError: "ASK",
    redis.exceptions.ClusterCrossSlotError: "CROSSSLOT",
    redis.exceptions.MasterDownError: "MASTERDOWN",
    redis.exceptions.ClusterDownError: "CLUSTERDOWN",
}
NO_LOGIN = redis.AuthenticationError, redis.exceptions.AuthorizationError
OTHER_CODE = re.compile(r"[A-Z]+( |$)")
UNKNOWN = re.compile(r"unknown (?:sub)?command", re.IGNORECASE)
COMMAND = re.compile(r"'([^' ]+)'")


def _row(error: Exception) -> dict[str, str]:
    """The row of `errors.json` for an error that the server or a proxy replied."""
    said = str(error)
    code = next((code for kind, code in CODES.items() if isinstance(error, kind)), None)
    if code or not OTHER_CODE.match(said):
        said = f"{code or 'ERR'} {said}"
    return next(row for row in ROWS if _fits(row, said))


def _fits(row: dict[str, str], said: str) -> bool:
    if "code" in row:
        words = said.split(" ")
        if not said.startswith("ERR Error running script"):
            return words[0] == row["code"]
        return row["code"] in (word.lstrip("-") for word in words)  # Redis 6: of a command in the script
    return row.get("contains", "") in said and row.get("is", said) == said


def is_retried(error: Exception) -> bool:
    """Whether the call is repeated with the same id."""
    if isinstance(error, LOST_REPLY):
        return True
    return isinstance(error, redis.ResponseError) and _row(error)["passes"] == "yes"


def is_read_only(error: Exception) -> bool:
    """Whether the endpoint is no longer the master."""
    return isinstance(error, redis.ResponseError) and _row(error).get("code") in ("READONLY", "REDIRECT")


def is_unknown_command(error: Exception) -> bool:
    """Whether the server or a proxy does not have the command."""
    return isinstance(error, redis.ResponseError) and bool(UNKNOWN.search(str(error)))


def of_permission(error: Exception, prefix: str) -> NoPermission | None:
    """The error for the caller, if the server refuses the client."""
    said = str(error).removesuffix(".")
    if isinstance(error, NO_LOGIN) or isinstance(error, redis.ResponseError) and "unauthenticated" in said:
        # The second one: before the login, a server accepts only short commands.
        return NoPermission(f"{said}. Check the user name and the password of the client")
    if not isinstance(error, redis.exceptions.NoPermissionError):
        return None
    if "channel" in said:
        rule = f"&{prefix}:inbox:*"
    elif command := COMMAND.search(said):
        rule = f"+{command[1]}"
    else:
        rule = f"~{prefix}:*"
    return NoPermission(f"{said}. Add the permission: ACL SETUSER <user> {rule}")
